// Puts the parts of the page together.

import { ask, byId, h, notice, say } from './dom.js';
import { CAN_COLOUR } from './drafted.js';
import { Chat } from './chat.js';
import { Memory, Store } from './store.js';
import { Server } from './server.js';
import { Settings, settingsDialog } from './settings.js';
import { Sidebar } from './sidebar.js';
import { Thread } from './thread.js';
import { download, exported, fileName } from './transfer.js';

const store = await Store.open().catch(() => {
  notice('This browser keeps nothing here: conversations are lost with this page.');
  return new Memory();
});
const server = new Server((wrong) => ask({
  title: 'API key',
  text: wrong ? 'The server does not take this key.' : 'The server asks for a key. It is forgotten with this tab.',
  ok: 'Go on',
  value: '',
  secret: true,
}));
const settings = new Settings();
const chat = new Chat(store, server, settings);
const thread = new Thread(chat, {
  edit: (message, text) => run(chat.edit(message, text)),
  regenerate: (message) => {
    run(chat.regenerate(message));
    // The button that was pressed goes with the message that it belongs to.
    byId('stop').focus();
  },
  choose: (message) => run(chat.choose(message)),
});
const sidebar = new Sidebar(chat, store);
settingsDialog(settings, () => server.info);

/** Says what went wrong instead of leaving it to the console: a full disk, for one. */
function run(work) {
  return work.catch((error) => notice(`That failed: ${error.message}`));
}

// The message box

const box = byId('text');

function fit() {
  box.style.height = 'auto';
  box.style.height = `${box.scrollHeight}px`;
}

function send() {
  const text = box.value;
  if (!text.trim() || chat.writing()) return;
  box.value = '';
  fit();
  thread.toEnd();
  run(chat.send(text));
}

box.addEventListener('input', fit);
box.addEventListener('keydown', (event) => {
  // On a screen keyboard Enter is the only way to a new line; while a word is being composed it ends the word.
  const phone = matchMedia('(pointer: coarse)').matches;
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || phone) return;
  event.preventDefault();
  send();
});
byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
byId('stop').addEventListener('click', () => {
  chat.stop();
  box.focus();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !document.querySelector('dialog[open], .editor')) chat.stop();
});

// The open conversation

function showHead() {
  const { conversation } = chat;
  const title = conversation?.title ?? 'New conversation';
  byId('title').textContent = title;
  document.title = conversation ? `${title} – spec-run` : 'spec-run';
  for (const id of ['title', 'export', 'delete']) byId(id).disabled = !conversation;
  if (conversation && location.hash !== `#${conversation.id}`) history.replaceState(null, '', `#${conversation.id}`);
}

let wasWriting = null;
function showState() {
  const writing = chat.writing();
  byId('send').hidden = Boolean(writing);
  byId('stop').hidden = !writing;
  if (writing && !wasWriting) say('The answer is being written');
  if (!writing && wasWriting) {
    say('The answer has ended');
    // Without a key nothing was known of the server; there may be one now.
    if (wasWriting.state === 'done') meet();
    // A model of several is loaded by now.
    if (server.info.models.length && !server.info.context) choose(server.info.model);
  }
  if (!writing && document.activeElement === document.body && matchMedia('(hover: hover)').matches) box.focus();
  wasWriting = writing;
  const total = chat.tree.path().findLast(({ figures }) => figures?.total)?.figures.total;
  const { context } = server.info;
  byId('context').textContent = total && context ? `${total.toLocaleString('en')} of ${context.toLocaleString('en')} tokens` : '';
}

chat.addEventListener('thread', () => { showHead(); showState(); });
chat.addEventListener('message', showState);

async function open(id) {
  sidebar.close();
  await run(chat.open(id));
  thread.toEnd();
}

addEventListener('hashchange', () => {
  const id = location.hash.slice(1);
  if (id !== (chat.conversation?.id ?? '')) open(id);
});
byId('new').addEventListener('click', async () => {
  history.pushState(null, '', location.pathname + location.search);
  await open('');
  box.focus();
});
byId('title').addEventListener('click', async () => {
  const title = await ask({ title: 'Name of this conversation', ok: 'Rename', value: chat.conversation.title });
  if (title?.trim()) await run(chat.rename(title.trim().slice(0, 200)));
});
byId('delete').addEventListener('click', async () => {
  const sure = await ask({ title: 'Delete this conversation?', text: `“${chat.conversation.title}”, with all its branches.`, ok: 'Delete' });
  if (sure === null) return;
  history.replaceState(null, '', location.pathname + location.search);
  await run(chat.remove());
});
byId('export').addEventListener('click', async () => {
  download(fileName(chat.conversation.title), await exported(store, [chat.conversation]));
});

// Colours

function showColours() {
  thread.coloured = settings.values.colours === 'on';
  byId('colours').setAttribute('aria-pressed', thread.coloured);
  thread.show();
}
byId('colours').hidden = !CAN_COLOUR;
byId('colours').addEventListener('click', () => {
  settings.set({ colours: thread.coloured ? '' : 'on' });
  showColours();
});

let met = false;
/** Finds out what the server is, and has; once. */
async function meet() {
  if (met) return;
  const model = byId('model');
  try {
    await server.load((why) => { model.textContent = why; }, settings.values.model);
    met = true;
    showServer();
    showState();
  } catch (error) {
    model.textContent = error.message;
  }
}

function showServer() {
  const { model, name } = server.info;
  // llama-server calls a model by the path of its file, where it has no other name. Paths of its disk are not shown.
  const id = model.split(/[/\\]/).at(-1);
  const several = server.info.models.length > 0;
  byId('models').hidden = !several;
  byId('models').replaceChildren(...server.info.models.map((one) => h('option', { value: one }, one)));
  byId('models').value = model;
  byId('model').textContent = name || several ? name : id;
  byId('model').title = name && name !== id ? `requests name it ${id}` : '';
}

/** Of a server that has several models: which answers from now on. */
async function choose(model) {
  settings.set({ model });
  try {
    await server.choose(model);
  } catch (error) {
    notice(error.message);
  }
  showServer();
  showState();
}
byId('models').addEventListener('change', (event) => run(choose(event.target.value)));

// The beginning

/** Has the page kept for times without the server, where browsers allow it: on this machine, or by HTTPS. */
function keepPage() {
  if (!navigator.serviceWorker) return;
  const worker = 'sw.js';
  const policy = globalThis.trustedTypes?.createPolicy('page', { createScriptURL: () => worker });
  // A page that is not kept is no harm while the server is there.
  navigator.serviceWorker.register(policy ? policy.createScriptURL(worker) : worker).catch(() => {});
}

keepPage();
fit();
await run(chat.start());
showColours();
await open(location.hash.slice(1));
box.focus();
await meet();
