// Branches: another answer, another question, and the way between them.

import assert from 'node:assert/strict';
import { answers, ended, gate, open, pageTest, questions, send, texts } from './browser.mjs';

let calls = 0;
const numbered = (body, reply) => {
  calls += 1;
  reply.text(`answer ${calls} to ${body.messages.at(-1).content}`);
  reply.end();
};

pageTest('another answer stands beside the first, with what followed each', { answer: numbered }, async (page, mock) => {
  calls = 0;
  await send(page, 'q');
  await ended(page);
  await send(page, 'more');
  await ended(page);
  await answers(page).first().getByRole('button', { name: 'Another answer' }).click();
  await answers(page).first().getByText('answer 3 to q').waitFor();
  await ended(page);
  assert.deepEqual(mock.requests.at(-1).messages, [{ role: 'user', content: 'q' }]);
  assert.deepEqual(await texts(answers(page)), ['answer 3 to q']);
  assert.ok(await answers(page).first().getByRole('button', { name: 'Later version' }).isDisabled());
  await answers(page).first().getByRole('button', { name: 'Earlier version' }).click();
  await answers(page).first().getByText('1/2').waitFor();
  assert.deepEqual(await texts(answers(page)), ['answer 1 to q', 'answer 2 to more']);
  await open(page, mock, new URL(page.url()).hash);
  await page.reload();
  await answers(page).first().getByText('1/2').waitFor();
  assert.deepEqual(await texts(answers(page)), ['answer 1 to q', 'answer 2 to more']);
});

pageTest('editing a question asks it anew and keeps the old branch', { answer: numbered }, async (page, mock) => {
  calls = 0;
  await send(page, 'first');
  await ended(page);
  await send(page, 'seocnd');
  await ended(page);
  await questions(page).last().hover();
  await questions(page).last().getByRole('button', { name: 'Edit' }).click();
  const editor = page.getByRole('textbox', { name: 'Edit the message' });
  assert.equal(await editor.inputValue(), 'seocnd');
  await editor.fill('second');
  await page.locator('.editor').getByRole('button', { name: 'Send' }).click();
  await answers(page).last().getByText('answer 3 to second').waitFor();
  await ended(page);
  assert.deepEqual(mock.requests.at(-1).messages.map(({ content }) => content), ['first', 'answer 1 to first', 'second']);
  await questions(page).last().getByRole('button', { name: 'Earlier version' }).click();
  await answers(page).last().getByText('answer 2 to seocnd').waitFor();
  assert.deepEqual(await texts(questions(page)), ['first', 'seocnd']);
});

pageTest('an answer can be edited, and the next request has it so', { answer: numbered }, async (page, mock) => {
  calls = 0;
  await send(page, 'q');
  await ended(page);
  await answers(page).first().getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Edit the message' }).fill('what it should have said');
  await page.locator('.editor').getByRole('button', { name: 'Save' }).click();
  await answers(page).first().getByText('what it should have said').waitFor();
  assert.equal(mock.requests.length, 1);
  await send(page, 'and?');
  await ended(page);
  assert.equal(mock.requests[1].messages[1].content, 'what it should have said');
});

pageTest('an edit that is cancelled changes nothing', { answer: numbered }, async (page, mock) => {
  await send(page, 'q');
  await ended(page);
  await questions(page).first().hover();
  await questions(page).first().getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Edit the message' }).fill('something else');
  await page.keyboard.press('Escape');
  assert.deepEqual(await texts(questions(page)), ['q']);
  assert.equal(mock.requests.length, 1);
});

const growing = gate();
pageTest('Escape ends an edit, and not the answer below it', {
  answer: async (body, reply) => {
    reply.text('begun');
    await growing.promise;
    reply.text(', ended');
    reply.end();
  },
}, async (page) => {
  await send(page, 'q');
  await answers(page).getByText('begun').waitFor();
  await questions(page).first().hover();
  await questions(page).first().getByRole('button', { name: 'Edit' }).click();
  await page.keyboard.press('Escape');
  await page.locator('.editor').waitFor({ state: 'detached' });
  growing.open();
  await ended(page);
  assert.deepEqual(await texts(answers(page)), ['begun, ended']);
});
