// The conversation that is open, and the answers that are being written, in this one and in others.

import { Answer, emptyAnswer } from './answer.js';
import { ServerError } from './server.js';
import { Tree } from './tree.js';

const SAVE_EVERY_MS = 400;
/** A message of another tab that was not saved for so long has no one who writes it. */
const ABANDONED_MS = 3000;
const LEFT = 'left-behind';

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Says what has changed by events: "list", "thread", and "message" with the message. */
export class Chat extends EventTarget {
  conversations = [];
  /** The open one, or null for one that has no message yet. */
  conversation = null;
  tree = new Tree();
  #store;
  #server;
  #settings;
  /** By message: how to stop it. */
  #running = new Map();
  #tab = sessionStorage.getItem('tab') ?? newId();

  constructor(store, server, settings) {
    super();
    this.#store = store;
    this.#server = server;
    this.#settings = settings;
    sessionStorage.setItem('tab', this.#tab);
    // What came since the last save would be lost with the page: a database does not wait for anyone who leaves.
    addEventListener('pagehide', () => {
      const left = [...this.#running.keys()].map((message) => ({ ...message, state: 'cut' }));
      if (left.length) sessionStorage.setItem(LEFT, JSON.stringify(left));
    });
    // Nothing was left behind by a page that comes back as it was.
    addEventListener('pageshow', ({ persisted }) => { if (persisted) sessionStorage.removeItem(LEFT); });
  }

  #say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async start() {
    const left = JSON.parse(sessionStorage.getItem(LEFT) ?? '[]');
    sessionStorage.removeItem(LEFT);
    for (const message of left) await this.#store.putMessage(message);
    await this.refresh();
  }

  /** Reads the list of conversations again. */
  async refresh() {
    this.conversations = await this.#store.conversations();
    this.#say('list');
  }

  async open(id) {
    const conversation = this.conversations.find((one) => one.id === id) ?? null;
    const messages = conversation ? await this.#store.messages(id) : [];
    this.conversation = conversation;
    this.tree = new Tree(messages.map((message) => this.#mine(message) ?? message), conversation?.chosen);
    this.#mourn();
    this.#say('thread');
    this.#say('list');
  }

  /** The object that an answer of this tab is written to, not a copy that the store has kept of it. */
  #mine({ id }) {
    return [...this.#running.keys()].find((message) => message.id === id);
  }

  /** Marks answers that no one writes any more; those of other tabs get some time to show that they live. */
  #mourn() {
    let waiting = false;
    for (const message of this.tree.all()) {
      if (message.state !== 'writing' || this.#running.has(message)) continue;
      if (message.tab === this.#tab || Date.now() - message.saved > ABANDONED_MS) {
        message.state = 'cut';
        this.#store.putMessage(message);
        this.#say('message', message);
      } else {
        waiting = true;
      }
    }
    const { conversation } = this;
    if (waiting) setTimeout(() => { if (this.conversation === conversation) this.open(conversation.id); }, ABANDONED_MS);
  }

  /** The answer that is being written on the branch that is shown. */
  writing() {
    return this.tree.path().find((message) => this.#running.has(message)) ?? null;
  }

  isWriting(conversation) {
    return [...this.#running.keys()].some((message) => message.conversation === conversation);
  }

  stop() {
    this.#running.get(this.writing())?.abort();
  }

  async send(text) {
    if (!this.conversation) {
      this.conversation = { id: newId(), title: titleOf(text), created: Date.now(), updated: Date.now(), chosen: {} };
      this.tree = new Tree();
    }
    await this.#answer(this.#add('user', this.tree.path().at(-1) ?? null, { content: text }));
  }

  /** Another version of a message; the old one stays as its sibling. */
  async edit(message, text) {
    const parent = this.tree.before(message).at(-1) ?? null;
    const edited = this.#add(message.role, parent, { content: text });
    if (message.role === 'user') await this.#answer(edited);
    else await this.#changed([edited]);
  }

  async regenerate(message) {
    await this.#answer(this.tree.before(message).at(-1));
  }

  async choose(message) {
    this.tree.choose(message);
    await this.#changed([]);
  }

  async rename(title) {
    this.conversation.title = title;
    await this.#changed([]);
  }

  async remove() {
    const { id } = this.conversation;
    for (const [message, controller] of this.#running) if (message.conversation === id) controller.abort('removed');
    await this.#store.remove(id);
    await this.refresh();
    await this.open(null);
  }

  #add(role, parent, fields) {
    const message = {
      id: newId(), conversation: this.conversation.id, parent: parent?.id ?? null, role, created: Date.now(),
      state: 'done', error: null, ...emptyAnswer(), ...fields,
    };
    this.tree.add(message);
    return message;
  }

  /** Shows and keeps the open conversation as it is now. */
  async #changed(messages) {
    const { conversation } = this;
    conversation.chosen = this.tree.chosen;
    conversation.updated = Date.now();
    this.#say('thread');
    await this.#store.put(conversation, messages);
    await this.refresh();
  }

  async #answer(question) {
    const settings = this.#settings.request(this.#server.info.masks);
    const system = this.#settings.values.system;
    const messages = [...this.tree.before(question), question]
      .filter(({ role, content }) => role === 'user' || content)
      .map(({ role, content }) => ({ role, content }));
    if (system) messages.unshift({ role: 'system', content: system });
    const message = this.#add('assistant', question, {
      state: 'writing', tab: this.#tab, saved: Date.now(), model: this.#server.info.model, mask: settings.mask ?? null,
    });
    const controller = new AbortController();
    this.#running.set(message, controller);
    await this.#changed([question, message]);
    // What hinders one of these saves hinders the last one too, and is told there.
    const saving = setInterval(() => this.#save(message).catch(() => {}), SAVE_EVERY_MS);
    try {
      const answer = new Answer(message, performance.now());
      for await (const chunk of this.#server.answer(messages, settings, controller.signal)) {
        answer.take(chunk, performance.now());
        this.#say('message', message);
      }
      message.state = message.finish ? 'done' : 'cut';
    } catch (error) {
      if (controller.signal.aborted) message.state = 'stopped';
      else if (error instanceof ServerError) Object.assign(message, { state: 'failed', error: error.message });
      else if (message.content || message.reasoning) message.state = 'cut';
      else Object.assign(message, { state: 'failed', error: 'The server cannot be reached.' });
    } finally {
      clearInterval(saving);
      this.#running.delete(message);
    }
    if (controller.signal.reason === 'removed') return;
    this.#say('message', message);
    this.#say('list');
    await this.#save(message);
  }

  #save(message) {
    message.saved = Date.now();
    return this.#store.putMessage(message);
  }
}

function titleOf(text) {
  const line = text.trim().split('\n', 1)[0];
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}
