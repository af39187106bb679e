// The list of conversations, and the files that they come from and go to. On a narrow screen it is a drawer.

import { byId, h, notice } from './dom.js';
import { download, exported, imported } from './transfer.js';

const LARGEST = 200 * 1024 * 1024;

export class Sidebar {
  #chat;
  #store;

  constructor(chat, store) {
    this.#chat = chat;
    this.#store = store;
    chat.addEventListener('list', () => this.#show());
    byId('menu').addEventListener('click', () => this.toggle());
    for (const id of ['shade', 'close-menu']) byId(id).addEventListener('click', () => this.toggle(false));
    byId('sidebar').addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || !document.body.classList.contains('drawer')) return;
      event.stopPropagation();
      this.close();
    });
    byId('export-all').addEventListener('click', async () => {
      download('conversations.json', await exported(store, await store.conversations()));
    });
    const file = byId('import-file');
    byId('import').addEventListener('click', () => file.click());
    file.addEventListener('change', async () => {
      if (file.files.length) await this.#import(file.files[0]);
      file.value = '';
    });
  }

  toggle(open = !document.body.classList.contains('drawer')) {
    const was = document.body.classList.toggle('drawer', open);
    byId('shade').hidden = !open;
    byId('menu').setAttribute('aria-expanded', open);
    document.querySelector('main').inert = open;
    if (was) byId('new').focus();
    else byId('menu').focus();
  }

  /** Closes the drawer, where there is one that is open. */
  close() {
    if (document.body.classList.contains('drawer')) this.toggle(false);
  }

  #show() {
    const { conversations, conversation } = this.#chat;
    byId('export-all').disabled = conversations.length === 0;
    byId('conversations').replaceChildren(...conversations.map(({ id, title }) => h('li', {},
      h('a', { href: `#${id}`, 'aria-current': id === conversation?.id ? 'page' : null, title },
        title, this.#chat.isWriting(id) ? h('span', { class: 'busy', role: 'img', 'aria-label': 'being written' }) : null))));
  }

  async #import(file) {
    try {
      if (file.size > LARGEST) throw new Error('This file is larger than 200 MiB.');
      const all = imported(await file.text());
      for (const [conversation, messages] of all) await this.#store.put(conversation, messages);
      await this.#chat.refresh();
      notice(`${all.length} conversation${all.length === 1 ? ' was' : 's were'} imported.`);
    } catch (error) {
      notice(`Nothing was imported. ${error.message}`);
    }
  }
}
