// Conversations and their messages, in IndexedDB. Each message is a record of its own, so an answer that is being written
// saves only itself.

const NAME = 'spec-run';
const VERSION = 1;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function open() {
  const request = indexedDB.open(NAME, VERSION);
  request.onupgradeneeded = () => {
    request.result.createObjectStore('conversations', { keyPath: 'id' });
    request.result.createObjectStore('messages', { keyPath: 'id' }).createIndex('conversation', 'conversation');
  };
  return done(request);
}

export class Store {
  #database;

  constructor(database) {
    this.#database = database;
  }

  static async open() {
    return new Store(await open());
  }

  #transaction(mode, work) {
    const transaction = this.#database.transaction(['conversations', 'messages'], mode);
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
    const result = work(transaction.objectStore('conversations'), transaction.objectStore('messages'));
    return Promise.all([result, ended]).then(([value]) => value);
  }

  /** The one that was used last comes first. */
  async conversations() {
    const all = await this.#transaction('readonly', (conversations) => done(conversations.getAll()));
    return all.sort((a, b) => b.updated - a.updated);
  }

  messages(conversation) {
    return this.#transaction('readonly', (_, messages) => done(messages.index('conversation').getAll(conversation)));
  }

  put(conversation, changed = []) {
    return this.#transaction('readwrite', (conversations, messages) => {
      conversations.put(conversation);
      for (const message of changed) messages.put(message);
    });
  }

  putMessage(message) {
    return this.#transaction('readwrite', (_, messages) => { messages.put(message); });
  }

  remove(conversation) {
    return this.#transaction('readwrite', async (conversations, messages) => {
      conversations.delete(conversation);
      for (const key of await done(messages.index('conversation').getAllKeys(conversation))) messages.delete(key);
    });
  }
}

/** The same for browsers that keep nothing (some private windows): it lasts until the page is closed. */
export class Memory {
  #conversations = new Map();
  #messages = new Map();

  async conversations() {
    return [...this.#conversations.values()].sort((a, b) => b.updated - a.updated);
  }

  async messages(conversation) {
    return [...this.#messages.values()].filter((message) => message.conversation === conversation);
  }

  async put(conversation, changed = []) {
    this.#conversations.set(conversation.id, conversation);
    for (const message of changed) this.#messages.set(message.id, message);
  }

  async putMessage(message) {
    this.#messages.set(message.id, message);
  }

  async remove(conversation) {
    this.#conversations.delete(conversation);
    for (const { id } of await this.messages(conversation)) this.#messages.delete(id);
  }
}
