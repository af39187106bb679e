// The messages of the chosen branch, and where the reader is in them.

import { byId } from './dom.js';
import { MessageView } from './message.js';

/** Nearer to the end than this, the reader is taken along as an answer grows. */
const NEAR_PX = 80;
/** Of the time, at most one part in so many is spent on showing a growing answer. */
const SPARE = 4;

export class Thread {
  #chat;
  #actions;
  #views = new Map();
  #dirty = new Set();
  #next = 0;
  /** The timer of the next showing. */
  #waiting = null;
  #follow = true;
  coloured = false;

  constructor(chat, actions) {
    this.#chat = chat;
    this.#actions = actions;
    const scroller = byId('scroller');
    scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    byId('latest').addEventListener('click', () => this.toEnd());
    chat.addEventListener('thread', () => this.show());
    chat.addEventListener('message', ({ detail }) => this.#changed(detail));
  }

  /** The whole branch, after it has changed. */
  show() {
    const path = this.#chat.tree.path();
    const wanted = new Set(path);
    for (const [message, view] of this.#views) {
      if (wanted.has(message)) continue;
      view.remove();
      this.#views.delete(message);
    }
    const list = byId('thread');
    for (const [i, message] of path.entries()) {
      if (!this.#views.has(message)) this.#views.set(message, new MessageView(message, this.#actions));
      const { element } = this.#views.get(message);
      if (list.children[i] !== element) list.insertBefore(element, list.children[i] ?? null);
      this.#update(message);
    }
    byId('empty').hidden = path.length > 0;
    if (this.#follow) this.#scrollDown();
    this.#scrolled();
  }

  #update(message) {
    this.#views.get(message)?.update(this.#chat.tree.siblings(message), this.coloured);
  }

  #changed(message) {
    if (!this.#views.has(message)) return;
    this.#dirty.add(message);
    // What has ended is shown at once: nothing more comes that showing it could hold up.
    if (message.state !== 'writing') this.#next = 0;
    else if (this.#waiting) return;
    clearTimeout(this.#waiting);
    // Frames stop in a tab that is not seen; a text that grows there is shown when it is.
    this.#waiting = setTimeout(() => requestAnimationFrame(() => this.#flush()), Math.max(0, this.#next - performance.now()));
  }

  #flush() {
    const begun = performance.now();
    clearTimeout(this.#waiting);
    this.#waiting = null;
    for (const message of this.#dirty) this.#update(message);
    this.#dirty.clear();
    if (this.#follow) this.#scrollDown();
    const ended = performance.now();
    this.#next = ended + SPARE * (ended - begun);
  }

  #scrolled() {
    const scroller = byId('scroller');
    const below = scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop;
    this.#follow = below < NEAR_PX;
    byId('latest').hidden = this.#follow;
  }

  #scrollDown() {
    const scroller = byId('scroller');
    scroller.scrollTop = scroller.scrollHeight;
  }

  toEnd() {
    this.#follow = true;
    this.#scrollDown();
  }
}
