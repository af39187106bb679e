// One message as it is shown: its text, what can be done with it, and what became of it.

import { copyButton, h, iconButton } from './dom.js';
import { Colours } from './drafted.js';
import { Markdown } from './markdown.js';
import { speedLines } from './speed.js';

const ENDS = {
  stopped: 'Stopped.',
  cut: 'Cut off: the connection broke, or the page was closed.',
};

export class MessageView {
  element;
  #message;
  #actions;
  #coloured = false;
  #body = h('div', { class: 'body' });
  #content = h('div', { class: 'content' });
  #reasoning = h('details', { class: 'reasoning', hidden: true });
  #texts = {};
  #end = h('p', { class: 'end', hidden: true });
  #figures = h('div', { class: 'figures' });
  #tools = h('div', { class: 'tools' });

  /** `actions` are what the page can do: edit, regenerate, choose. */
  constructor(message, actions) {
    this.#message = message;
    this.#actions = actions;
    const label = message.role === 'user' ? 'You' : 'Answer';
    this.#body.append(this.#content, this.#end, this.#figures, this.#tools);
    if (message.role === 'assistant') {
      const inside = h('div', { class: 'markdown' });
      this.#reasoning.append(h('summary', {}, 'Reasoning'), inside);
      this.#body.prepend(this.#reasoning);
      this.#texts.reasoning = { markdown: new Markdown(inside), colours: new Colours() };
      const content = h('div', { class: 'markdown' });
      this.#content.append(content);
      this.#texts.content = { markdown: new Markdown(content), colours: new Colours() };
    }
    this.element = h('li', { class: `message ${message.role}`, 'aria-label': label, 'data-id': message.id }, this.#body);
  }

  /** Shows the message as it is now. */
  update(siblings, coloured) {
    const message = this.#message;
    this.element.dataset.state = message.state;
    if (message.role === 'user') this.#content.textContent = message.content;
    else this.#showAnswer(coloured);
    this.#showEnd();
    this.#showTools(siblings);
  }

  #showAnswer(coloured) {
    const message = this.#message;
    this.#reasoning.hidden = !message.reasoning;
    const thinking = message.state === 'writing' && !message.content;
    this.#reasoning.classList.toggle('running', thinking);
    for (const [name, { markdown, colours }] of Object.entries(this.#texts)) {
      markdown.show(message[name]);
      if (coloured) colours.paint(markdown.blocks, message.runs[name], message.sources);
      else if (this.#coloured) colours.clear();
    }
    this.#coloured = coloured;
    this.element.setAttribute('aria-busy', message.state === 'writing');
    this.#figures.replaceChildren(...speedLines(message));
  }

  #showEnd() {
    const { state, error, finish } = this.#message;
    const end = state === 'failed' ? error
      : ENDS[state] ?? (finish === 'length' ? 'Ended at the most tokens that were asked for, or at the end of the context.' : '');
    this.#end.textContent = end;
    this.#end.hidden = !end;
    this.#end.classList.toggle('failed', state === 'failed');
  }

  #showTools(siblings) {
    const message = this.#message;
    // While an answer grows nothing here changes; buttons that are replaced would lose the focus.
    const key = `${message.state} ${siblings.length} ${siblings.indexOf(message)}`;
    if (this.#tools.dataset.key === key) return;
    this.#tools.dataset.key = key;
    const focused = this.#tools.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') : null;
    this.#tools.replaceChildren();
    if (siblings.length > 1) this.#tools.append(this.#turns(siblings));
    if (message.state !== 'writing') {
      this.#tools.append(copyButton('Copy this message', () => message.content));
      this.#tools.append(iconButton('edit', 'Edit', () => this.#edit()));
      if (message.role === 'assistant') {
        this.#tools.append(iconButton('again', 'Another answer', () => this.#actions.regenerate(message)));
      }
    }
    if (focused) this.#tools.querySelector(`[aria-label="${focused}"]`)?.focus();
  }

  /** Arrows to the siblings of this message. */
  #turns(siblings) {
    const at = siblings.indexOf(this.#message);
    const turn = (name, label, to) => {
      const button = iconButton(name, label, () => this.#actions.choose(siblings[to]));
      button.disabled = !siblings[to];
      return button;
    };
    return h('span', { class: 'turns', role: 'group', 'aria-label': 'Versions' },
      turn('left', 'Earlier version', at - 1),
      h('span', { class: 'count' }, `${at + 1}/${siblings.length}`),
      turn('right', 'Later version', at + 1));
  }

  #edit() {
    const message = this.#message;
    const area = h('textarea', { rows: 3, 'aria-label': 'Edit the message' });
    area.value = message.content;
    const close = () => {
      form.replaceWith(this.#body);
      this.element.classList.remove('editing');
      this.#tools.querySelector('[aria-label="Edit"]')?.focus();
    };
    const save = () => {
      const text = area.value;
      close();
      if (text.trim() && text !== message.content) this.#actions.edit(message, text);
    };
    const form = h('form', {
      class: 'editor',
      onsubmit: (event) => { event.preventDefault(); save(); },
      onkeydown: (event) => {
        if (event.key === 'Escape') {
          // It ends the edit, not the answer that may be growing below.
          event.stopPropagation();
          close();
        }
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) save();
      },
    }, area, h('div', { class: 'buttons' },
      h('button', { type: 'button', class: 'quiet', onclick: close }, 'Cancel'),
      h('button', { type: 'submit', class: 'main' }, message.role === 'user' ? 'Send' : 'Save')));
    this.#body.replaceWith(form);
    this.element.classList.add('editing');
    area.focus();
  }

  /** Takes it from the page, with what it has painted. */
  remove() {
    for (const { colours } of Object.values(this.#texts)) colours.clear();
    this.element.remove();
  }
}
