// A conversation is a tree of messages: editing one, or asking for another answer, adds a sibling. What is shown is one
// path through it.

export class Tree {
  #messages = new Map();
  #children = new Map();
  /** By the id of a message, or '' for the root: the child that the path goes through. */
  chosen;

  constructor(messages = [], chosen = {}) {
    this.chosen = { ...chosen };
    for (const message of [...messages].sort((a, b) => a.created - b.created)) this.#keep(message);
  }

  #keep(message) {
    this.#messages.set(message.id, message);
    const key = message.parent ?? '';
    if (!this.#children.has(key)) this.#children.set(key, []);
    this.#children.get(key).push(message);
  }

  all() {
    return [...this.#messages.values()];
  }

  /** Adds a message; the path goes through it from now on. */
  add(message) {
    const last = this.all().reduce((latest, { created }) => Math.max(latest, created), 0);
    message.created = Math.max(message.created, last + 1);
    this.#keep(message);
    this.choose(message);
  }

  choose(message) {
    this.chosen[message.parent ?? ''] = message.id;
  }

  siblings(message) {
    return this.#children.get(message.parent ?? '') ?? [];
  }

  /** From the first message to the last one of the chosen branch. */
  path() {
    const path = [];
    for (let key = ''; ;) {
      const children = this.#children.get(key);
      if (!children) return path;
      const next = children.find(({ id }) => id === this.chosen[key]) ?? children.at(-1);
      path.push(next);
      key = next.id;
    }
  }

  /** The messages before this one. */
  before(message) {
    const path = [];
    for (let at = this.#messages.get(message.parent); at; at = this.#messages.get(at.parent)) path.unshift(at);
    return path;
  }
}
