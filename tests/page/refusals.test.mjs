// Servers that refuse, break off, or are not ours.

import assert from 'node:assert/strict';
import { ended, lastAnswer, open, pageTest, send, textOf } from './browser.mjs';

const ok = (body, reply) => { reply.text('fine'); reply.end(); };

pageTest('a key is asked for, tried, and kept for the tab only', { key: 'secret', opened: false, answer: ok, expected: [/401/] }, async (page, mock, context) => {
  await page.goto(mock.url);
  const key = page.getByRole('textbox', { name: 'API key' });
  await key.fill('wrong');
  await page.getByRole('button', { name: 'Go on' }).click();
  await page.getByText('does not take this key').waitFor();
  assert.equal(await key.getAttribute('type'), 'password');
  await key.fill('secret');
  await page.keyboard.press('Enter');
  await page.locator('#model').filter({ hasText: 'stories' }).waitFor();
  await send(page, 'go');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'fine');
  await page.reload();
  await page.locator('#model').filter({ hasText: 'stories' }).waitFor();
  const stored = await page.evaluate(() => JSON.stringify({ ...localStorage }));
  assert.ok(!stored.includes('secret'));
  const other = await context.newPage();
  await other.goto(mock.url);
  await other.getByRole('textbox', { name: 'API key' }).waitFor();
});

pageTest('a key that changes on the way is asked for again, and the answer comes', { answer: ok, expected: [/401/] }, async (page, mock) => {
  mock.key = 'new';
  await send(page, 'go');
  await page.getByRole('textbox', { name: 'API key' }).fill('new');
  await page.getByRole('button', { name: 'Go on' }).click();
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'fine');
  mock.key = 'newer';
  await send(page, 'and?');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await lastAnswer(page).getByText('wants an API key').waitFor();
});

pageTest('who has no key at first may give one later', { key: 'secret', opened: false, answer: ok, expected: [/401/] }, async (page, mock) => {
  await page.goto(mock.url);
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.locator('#model').filter({ hasText: 'wants an API key' }).waitFor();
  await send(page, 'go');
  await page.getByRole('textbox', { name: 'API key' }).fill('secret');
  await page.keyboard.press('Enter');
  await page.locator('#model').filter({ hasText: 'stories' }).waitFor();
  assert.equal(await textOf(lastAnswer(page)), 'fine');
});

pageTest('a server that loads its model is waited for', { loading: 2, opened: false, answer: ok, expected: [/503/] }, async (page, mock) => {
  await page.goto(mock.url);
  await page.getByText('The server is loading its model.').waitFor();
  await page.locator('#model').filter({ hasText: 'stories' }).waitFor();
});

pageTest('what a server refuses is said, and can be asked again', {
  answer: (body, reply) => reply.refuse(400, { type: 'exceed_context_size_error', message: 'too long', n_prompt_tokens: 5120, n_ctx: 4096 }),
  expected: [/400|503/],
}, async (page, mock) => {
  await send(page, 'go');
  await lastAnswer(page).getByText('This conversation has 5120 tokens, and the server\'s context 4096.').waitFor();
  mock.answer = (body, reply) => reply.json(503, {});
  await lastAnswer(page).getByRole('button', { name: 'Another answer' }).click();
  await lastAnswer(page).getByText('it is busy, or still loading').waitFor();
  mock.answer = ok;
  await lastAnswer(page).getByRole('button', { name: 'Another answer' }).click();
  await lastAnswer(page).getByText('fine').waitFor();
  await lastAnswer(page).getByText('3/3').waitFor();
  await send(page, 'on');
  await ended(page);
  assert.deepEqual(mock.requests.at(-1).messages.map(({ content }) => content), ['go', 'fine', 'on']);
});

pageTest('an answer that breaks off keeps what came', {
  answer: (body, reply) => {
    reply.text('so far');
    setTimeout(() => reply.cut(), 200);
  },
  expected: [/ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_REFUSED/],
}, async (page, mock) => {
  await send(page, 'go');
  await ended(page);
  assert.equal(await lastAnswer(page).getAttribute('data-state'), 'cut');
  assert.equal(await textOf(lastAnswer(page)), 'so far');
  // A server that goes in good order, in the middle of an answer, is the same to a reader.
  mock.answer = (body, reply) => { reply.text('up to here'); setTimeout(() => reply.raw('data: [DONE]\n\n'), 50); };
  await send(page, 'again');
  await ended(page);
  assert.equal(await lastAnswer(page).getAttribute('data-state'), 'cut');
  await mock.close();
  await send(page, 'anyone?');
  await lastAnswer(page).getByText('The server cannot be reached.').waitFor();
});

pageTest('an error within a stream is said, behind what came', {
  answer: (body, reply) => {
    reply.text('so far');
    reply.raw('data: {"error": {"code": 500, "message": "out of memory"}}\n\n');
  },
}, async (page, mock) => {
  await send(page, 'go');
  await lastAnswer(page).getByText('out of memory').waitFor();
  assert.equal(await textOf(lastAnswer(page)), 'so far');
  mock.answer = (body, reply) => reply.raw('data: {no json\n\n');
  await send(page, 'go');
  await lastAnswer(page).getByText('an event that is no JSON object').waitFor();
});

pageTest('any server of OpenAI\'s chat completions will do', {
  props: null,
  answer: (body, reply) => {
    reply.delta({ role: 'assistant', content: '' });
    reply.text('plain');
    reply.end({ usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 } });
  },
  expected: [/404/],
}, async (page, mock) => {
  assert.equal(await page.locator('#model').innerText(), 'some-model');
  await send(page, 'go');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'plain');
  // Fields that OpenAI's own server does not know would be refused by it.
  assert.deepEqual(Object.keys(mock.requests[0]).sort(), ['messages', 'model', 'stream', 'stream_options']);
  mock.answer = (body, reply) => reply.json(200, { choices: [{ message: { role: 'assistant', content: 'in one piece' }, finish_reason: 'stop' }] });
  await send(page, 'go');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'in one piece');
  assert.equal(await lastAnswer(page).getAttribute('data-state'), 'done');
});

pageTest('settings are sent, kept and checked', { answer: ok }, async (page, mock) => {
  const settings = page.getByRole('button', { name: 'Settings' });
  await settings.click();
  assert.equal(await page.getByLabel('Temperature').getAttribute('placeholder'), '0.8');
  await page.getByLabel('Temperature').fill('0');
  await page.getByLabel('Top-k').fill('20');
  await page.getByLabel('Top-p').fill('0.9');
  await page.getByLabel('Min-p').fill('0.1');
  await page.getByLabel('Seed').fill('42');
  await page.getByLabel('Most tokens').fill('100');
  await page.getByLabel('System message').fill('Be brief.');
  await page.getByLabel('Stop at').fill('END\n\\n\\n');
  await page.getByLabel('Appearance').selectOption('dark');
  await page.getByRole('button', { name: 'Save' }).click();
  await open(page, mock);
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), 'dark');
  await send(page, 'go');
  await ended(page);
  const { messages, temperature, top_k: k, top_p: p, min_p: min, seed, max_tokens: most, stop } = mock.requests[0];
  assert.deepEqual([temperature, k, p, min, seed, most, stop], [0, 20, 0.9, 0.1, 42, 100, ['END', '\n\n']]);
  assert.deepEqual(messages, [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'go' }]);
  await settings.click();
  await page.getByLabel('Top-p').fill('7');
  await page.getByRole('button', { name: 'Save' }).click();
  assert.match(await page.locator('#settings-error').innerText(), /^Top-p: /);
  await page.getByRole('button', { name: 'Clear all' }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await send(page, 'again');
  await ended(page);
  assert.deepEqual(Object.keys(mock.requests[1]).sort(), ['messages', 'model', 'speculation', 'stream', 'stream_options', 'timings_per_token']);
  assert.equal(mock.requests[1].messages[0].role, 'user');
});
