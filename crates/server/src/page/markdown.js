// Markdown of an answer that is still growing. Its blocks are kept as they are while they do not change, so a selection in
// one survives, and a long answer costs no more than its last block.

import DOMPurify from './vendor/purify.js';
import { Marked } from './vendor/marked.js';
import { copyButton, h } from './dom.js';

const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const PLAIN_TAG = /^<\/?(?:br|b|i|u|s|em|strong|sub|sup|kbd|mark|small)\s*\/?>$/i;

const marked = new Marked({
  gfm: true,
  renderer: {
    // HTML that a model writes is shown as it was written, but for a few tags that only change how text looks.
    html: ({ raw }) => (PLAIN_TAG.test(raw.trim()) ? raw : escaped(raw)),
    // An image would be fetched from another host as soon as it is shown.
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
  },
});

const ALLOWED = {
  ALLOWED_TAGS: [
    'a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'input', 'kbd', 'li',
    'mark', 'ol', 'p', 'pre', 's', 'small', 'strong', 'sub', 'sup', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'u', 'ul',
  ],
  ALLOWED_ATTR: ['align', 'checked', 'class', 'disabled', 'href', 'start', 'title', 'type'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  // No addresses relative to this page: they would be of this server.
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ['align', 'start', 'type'],
  RETURN_DOM_FRAGMENT: true,
};

export class Markdown {
  element;
  /** In order: where each block begins in the text, its text, and its element (null for a gap between blocks). */
  blocks = [];
  #links = 0;

  constructor(element) {
    this.element = element;
  }

  show(text) {
    const source = text.replace(/\r\n?/g, '\n');
    const tokens = lexed(source);
    // A later definition of a link changes what earlier text refers to.
    const links = Object.keys(tokens.links ?? {}).length;
    const last = links === this.#links ? 0 : Infinity;
    this.#links = links;
    let same = 0;
    while (last === 0 && same < tokens.length && this.blocks[same]?.raw === tokens[same].raw) same += 1;
    for (const { element } of this.blocks.splice(same)) element?.remove();
    let start = this.blocks.reduce((sum, { raw }) => sum + raw.length, 0);
    for (const token of tokens.slice(same)) {
      const element = token.type === 'space' || token.type === 'def' ? null : rendered(token);
      if (element) this.element.append(element);
      this.blocks.push({ start, raw: token.raw, element });
      start += token.raw.length;
    }
  }
}

function lexed(source) {
  try {
    return marked.lexer(source);
  } catch {
    // Quotes in quotes in quotes, some thousand deep, are too much for its stack.
    return [{ type: 'plain', raw: source }];
  }
}

function rendered(token) {
  const element = h('div', { class: 'block' });
  try {
    if (token.type === 'plain') throw new RangeError();
    element.append(DOMPurify.sanitize(marked.parser([token]), ALLOWED));
    furnish(element);
  } catch {
    element.replaceChildren(h('p', { class: 'plain' }, token.raw));
  }
  return element;
}

function furnish(element) {
  for (const link of element.querySelectorAll('a[href]')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
  for (const table of element.querySelectorAll('table')) {
    const scroller = h('div', { class: 'table', tabindex: 0 });
    table.replaceWith(scroller);
    scroller.append(table);
  }
  for (const pre of element.querySelectorAll('pre')) {
    const language = /(?:^|\s)language-(\S+)/.exec(pre.firstElementChild?.className ?? '')?.[1] ?? '';
    const figure = h('figure', { class: 'code' });
    const bar = h('figcaption', { class: 'bar' }, h('span', {}, language), copyButton('Copy this code', () => pre.textContent));
    pre.tabIndex = 0;
    pre.replaceWith(figure);
    figure.append(bar, pre);
  }
  for (const box of element.querySelectorAll('input')) box.setAttribute('aria-label', box.checked ? 'done' : 'not done');
}
