// Conversations as a file, out and in. What comes in gets new ids, so it never takes the place of what is there.

import { emptyAnswer } from './answer.js';
import { h } from './dom.js';
import { newId } from './chat.js';

const FORMAT = 'spec-run conversations';
const VERSION = 1;

export async function exported(store, conversations) {
  const all = [];
  for (const conversation of conversations) {
    const messages = (await store.messages(conversation.id)).sort((a, b) => a.created - b.created);
    // Which tab wrote a message, and when it was last saved, is of no use elsewhere.
    const plain = messages.map(({ tab, saved, conversation: _, ...message }) => message);
    all.push({ ...conversation, messages: plain });
  }
  return JSON.stringify({ format: FORMAT, version: VERSION, exported: new Date().toISOString(), conversations: all }, null, 1);
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function fileName(title) {
  const plain = title.normalize('NFKD').replace(/[^\w -]/g, '').trim().replace(/\s+/g, '-').slice(0, 40);
  return `${plain || 'conversation'}.json`;
}

/** The conversations of a file: pairs of a conversation and its messages. An Error says in one line what is wrong where. */
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('This file is not JSON.');
  }
  if (file?.format !== FORMAT) throw new Error(`This file has no conversations: its "format" is not "${FORMAT}".`);
  if (file.version !== VERSION) throw new Error(`This file is of version ${file.version}; this page reads version ${VERSION}.`);
  if (!Array.isArray(file.conversations)) throw new Error('This file has no list of conversations.');
  return file.conversations.map((conversation, i) => checkedConversation(conversation, `conversation ${i + 1}`));
}

function need(condition, where, what) {
  if (!condition) throw new Error(`In ${where} ${what}.`);
}

const isText = (value) => typeof value === 'string';
const isTime = (value) => Number.isFinite(value) && value >= 0;

function checkedConversation(from, where) {
  need(from && isText(from.title), where, 'the title is missing');
  need(isTime(from.created) && isTime(from.updated), where, 'the times are missing');
  need(Array.isArray(from.messages), where, 'the messages are missing');
  const id = newId();
  const ids = new Map();
  const messages = from.messages.map((message, i) => {
    const at = `${where}, message ${i + 1},`;
    need(message && isText(message.id) && !ids.has(message.id), at, 'the id is missing or not its own');
    ids.set(message.id, newId());
    return checkedMessage(message, at);
  });
  for (const [i, message] of messages.entries()) {
    const at = `${where}, message ${i + 1},`;
    need(message.parent === null || ids.has(message.parent), at, 'the parent is not in the file');
    message.id = ids.get(message.id);
    message.conversation = id;
    if (message.parent !== null) message.parent = ids.get(message.parent);
  }
  needTree(messages, where);
  const chosen = {};
  for (const [parent, child] of Object.entries(from.chosen ?? {})) {
    if (ids.has(child) && (parent === '' || ids.has(parent))) chosen[ids.get(parent) ?? ''] = ids.get(child);
  }
  return [{ id, title: from.title.slice(0, 200), created: from.created, updated: from.updated, chosen }, messages];
}

function checkedMessage(from, at) {
  need(from.role === 'user' || from.role === 'assistant', at, 'the role is neither "user" nor "assistant"');
  need(isText(from.content), at, 'the content is missing');
  need(isTime(from.created), at, 'the time is missing');
  need(from.parent === null || isText(from.parent), at, 'the parent is neither null nor an id');
  const state = ['done', 'stopped', 'cut', 'failed'].includes(from.state) ? from.state : 'cut';
  const runs = { content: checkedRuns(from.runs?.content), reasoning: checkedRuns(from.runs?.reasoning) };
  return {
    ...emptyAnswer(),
    id: from.id, parent: from.parent, role: from.role, content: from.content, created: from.created, state, runs,
    reasoning: isText(from.reasoning) ? from.reasoning : '',
    error: isText(from.error) ? from.error : null,
    model: isText(from.model) ? from.model : '',
    mask: isText(from.mask) ? from.mask : null,
    finish: isText(from.finish) ? from.finish : null,
    sources: Array.isArray(from.sources) ? from.sources.map(String) : [],
    figures: checkedFigures(from.figures),
  };
}

function checkedRuns(runs) {
  const isRun = (run) => Array.isArray(run) && Number.isInteger(run[0]) && run[0] > 0 && (run[1] === null || Number.isInteger(run[1]));
  return Array.isArray(runs) && runs.every(isRun) ? runs.map(([length, source]) => [length, source]) : [];
}

function checkedFigures(from) {
  if (!from || !Number.isFinite(from.tokens)) return null;
  const number = (name) => (Number.isFinite(from[name]) ? from[name] : null);
  const names = ['perSecond', 'wait', 'prompt', 'promptPerSecond', 'total', 'drafted', 'accepted', 'speedup'];
  const bySource = Array.isArray(from.bySource)
    ? from.bySource.filter((one) => isText(one?.name) && Number.isFinite(one.accepted))
      .map(({ name, drafted, accepted }) => ({ name, drafted: Number.isFinite(drafted) ? drafted : null, accepted }))
    : [];
  return { tokens: from.tokens, exact: Boolean(from.exact), counted: Boolean(from.counted), ...Object.fromEntries(names.map((name) => [name, number(name)])), bySource };
}

/** Every message must lead to the root; parents that go round would never end. */
function needTree(messages, where) {
  const parents = new Map(messages.map(({ id, parent }) => [id, parent]));
  const rooted = new Set([null]);
  for (const { id } of messages) {
    const way = new Set();
    let at = id;
    for (; !rooted.has(at); at = parents.get(at)) {
      need(!way.has(at), where, 'a message is its own ancestor');
      way.add(at);
    }
    for (const one of way) rooted.add(one);
  }
}
