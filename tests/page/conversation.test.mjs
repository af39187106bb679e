// Writing, reading along, stopping, and what is kept.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { answers, ended, gate, lastAnswer, open, pageTest, questions, send, textOf, texts } from './browser.mjs';

const echo = (body, reply) => {
  reply.text(`You said: ${body.messages.at(-1).content}`);
  reply.end();
};

pageTest('a conversation: each request has all that was said before', { answer: echo }, async (page, mock) => {
  await send(page, 'one');
  await ended(page);
  await send(page, 'two');
  await ended(page);
  assert.deepEqual(await texts(answers(page)), ['You said: one', 'You said: two']);
  assert.deepEqual(mock.requests[1].messages, [
    { role: 'user', content: 'one' },
    { role: 'assistant', content: 'You said: one' },
    { role: 'user', content: 'two' },
  ]);
  const { stream, stream_options: options, timings_per_token: timings, speculation, model } = mock.requests[0];
  assert.deepEqual([stream, options, timings, speculation, model], [true, { include_usage: true }, true, true, 'stories']);
  assert.equal(await page.getByLabel('Message', { exact: true }).inputValue(), '');
});

const held = gate();
pageTest('an answer is shown as it comes', {
  answer: async (body, reply) => {
    reply.raw(': ping\n\n');
    reply.text('The beginning, ');
    await held.promise;
    reply.text('and the end.');
    reply.end();
  },
}, async (page) => {
  await send(page, 'go');
  await lastAnswer(page).getByText('The beginning,').waitFor();
  assert.equal(await lastAnswer(page).getAttribute('aria-busy'), 'true');
  held.open();
  await lastAnswer(page).getByText('The beginning, and the end.').waitFor();
  await ended(page);
  assert.equal(await lastAnswer(page).getAttribute('aria-busy'), 'false');
});

pageTest('events are put together wherever the network cuts them', {
  answer: async (body, reply) => {
    const event = Buffer.from(`data: ${JSON.stringify({ choices: [{ delta: { content: 'grüße 🐈 ende' } }] })}\r\n\r\n`);
    for (const byte of event) {
      reply.raw(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    reply.end();
  },
}, async (page) => {
  await send(page, 'go');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'grüße 🐈 ende');
});

const hungUp = gate();
pageTest('stop keeps what came, and hangs up', {
  answer: async (body, reply) => {
    reply.text('as far as this');
    await reply.closed;
    hungUp.open();
  },
}, async (page) => {
  await send(page, 'go');
  await lastAnswer(page).getByText('as far as this').waitFor();
  await page.getByRole('button', { name: 'Stop the answer' }).click();
  await hungUp.promise;
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'as far as this');
  assert.match(await lastAnswer(page).locator('.end').textContent(), /Stopped/);
});

pageTest('a reload in the middle keeps what came and says that it is cut', {
  answer: async (body, reply) => {
    reply.text('half of ');
    await new Promise((resolve) => { setTimeout(resolve, 500); });
    reply.text('a word');
  },
}, async (page, mock) => {
  // At once, before it is saved in its usual turn.
  await page.evaluate(() => {
    const thread = document.getElementById('thread');
    new MutationObserver(() => { if (thread.textContent.includes('half of a word')) location.reload(); })
      .observe(thread, { subtree: true, childList: true, characterData: true });
  });
  await Promise.all([page.waitForEvent('load'), send(page, 'go')]);
  await lastAnswer(page).getByText('half of a word').waitFor();
  assert.equal(await lastAnswer(page).getAttribute('data-state'), 'cut');
  assert.match(await lastAnswer(page).locator('.end').textContent(), /Cut off/);
  mock.answer = echo;
  await send(page, 'again');
  await ended(page);
  assert.equal(mock.requests.at(-1).messages[1].content, 'half of a word');
});

pageTest('an answer of another tab is left to it, unless nobody writes it any more', {
  answer: async (body, reply) => {
    reply.text('begun');
    await elsewhere.promise;
    reply.text(', and ended');
    if (body.messages.length === 1) reply.end();
  },
}, async (page, mock, context) => {
  await send(page, 'go');
  await lastAnswer(page).getByText('begun').waitFor();
  const other = await context.newPage();
  await open(other, mock, new URL(page.url()).hash);
  assert.equal(await lastAnswer(other).getAttribute('data-state'), 'writing');
  elsewhere.open();
  await ended(page);
  assert.equal(await lastAnswer(page).getAttribute('data-state'), 'done');
  await lastAnswer(other).getByText('begun, and ended').waitFor();
  assert.equal(await lastAnswer(other).getAttribute('data-state'), 'done');
  await send(page, 'once more');
  await lastAnswer(page).getByText(', and ended').waitFor();
  // Saved once, so that the other tab knows of it.
  await page.waitForTimeout(500);
  await page.close();
  await open(other, mock, new URL(other.url()).hash);
  await other.reload();
  await other.locator('.message[data-state="cut"]').waitFor();
  assert.equal(await textOf(lastAnswer(other)), 'begun, and ended');
});
const elsewhere = gate();

pageTest('an answer goes on while another conversation is open', {
  answer: async (body, reply, { promise } = slow) => {
    if (body.messages[0].content !== 'slow') return echo(body, reply);
    reply.text('slowly, ');
    await promise;
    reply.text('but surely');
    return reply.end();
  },
}, async (page) => {
  await send(page, 'slow');
  await lastAnswer(page).getByText('slowly,').waitFor();
  await page.getByRole('button', { name: 'New conversation' }).first().click();
  await page.getByText('What would you like to write?').waitFor();
  await send(page, 'quick');
  await lastAnswer(page).getByText('You said: quick').waitFor();
  slow.open();
  await page.locator('.busy').waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'slow' }).click();
  await lastAnswer(page).getByText('slowly, but surely').waitFor();
  assert.equal(await questions(page).count(), 1);
});
const slow = gate();

pageTest('conversations are kept, renamed, deleted', { answer: echo }, async (page, mock) => {
  await send(page, 'the first');
  await ended(page);
  await page.getByRole('button', { name: 'New conversation' }).first().click();
  await send(page, 'the second');
  await ended(page);
  await page.locator('#title').click();
  await page.getByRole('textbox', { name: 'Name of this conversation' }).fill('renamed');
  await page.getByRole('button', { name: 'Rename', exact: true }).click();
  await page.getByRole('link', { name: 'renamed' }).waitFor();
  await open(page, mock);
  assert.deepEqual(await page.locator('#conversations a').allTextContents(), ['renamed', 'the first']);
  await page.getByRole('link', { name: 'the first' }).click();
  await lastAnswer(page).getByText('You said: the first').waitFor();
  await page.getByRole('button', { name: 'Delete this conversation' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByText('What would you like to write?').waitFor();
  assert.deepEqual(await page.locator('#conversations a').allTextContents(), ['renamed']);
  await page.reload();
  await page.getByRole('link', { name: 'renamed' }).waitFor();
  assert.equal(await page.locator('#conversations a').count(), 1);
});

pageTest('export and import give the same conversation, beside the old one', { answer: echo }, async (page, mock, context) => {
  await send(page, 'keep **this**');
  await ended(page);
  await answers(page).first().getByRole('button', { name: 'Another answer' }).click();
  await answers(page).first().getByText('2/2').waitFor();
  await ended(page);
  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export this conversation' }).click()]);
  assert.equal(saved.suggestedFilename(), 'keep-this.json');
  const file = await saved.path();
  const text = JSON.parse(await readFile(file, 'utf8'));
  assert.equal(text.conversations[0].messages.length, 3);
  const upload = async (buffer) => {
    const notice = page.locator('#notice');
    await notice.evaluate((element) => { element.hidden = true; });
    await page.locator('#import-file').setInputFiles({ name: 'c.json', mimeType: 'application/json', buffer: Buffer.from(buffer) });
    await notice.waitFor();
    return notice.textContent();
  };
  assert.equal(await upload(JSON.stringify(text)), '1 conversation was imported.');
  assert.equal(await page.locator('#conversations a').count(), 2);
  await page.locator('#conversations a:not([aria-current])').click();
  await answers(page).first().getByText('2/2').waitFor();
  assert.equal(await textOf(questions(page)), 'keep **this**');

  assert.match(await upload('{"format":'), /not JSON/);
  assert.match(await upload('{}'), /no conversations/);
  const [one] = text.conversations;
  const broken = (change) => {
    const copy = structuredClone(text);
    change(copy.conversations[0]);
    return upload(JSON.stringify(copy));
  };
  assert.match(await broken(({ messages }) => { messages[1].role = 'system'; }), /conversation 1, message 2,.*role/);
  assert.match(await broken(({ messages }) => { messages[0].parent = messages[1].id; }), /its own ancestor/);
  assert.match(await broken(({ messages }) => { messages[0].parent = 'nobody'; }), /parent is not in the file/);
  assert.match(await broken(({ messages }) => { messages[1].content = 7; }), /content is missing/);
  assert.match(await broken((c) => { delete c.title; }), /title/);
  assert.equal(await page.locator('#conversations a').count(), 2);
  assert.ok(one.messages.every((message) => !('tab' in message)));
  assert.equal(context.pages().length, 1);
});
