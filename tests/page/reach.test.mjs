// Who can use the page: by keyboard, by screen reader, on a phone, in the dark.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { answers, ELSEWHERE, ended, gate, lastAnswer, open, pageTest, PHONE, questions, send, textOf } from './browser.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const RICH = `## Heading\n\nText with \`code\`, **bold** and a [link](http://example.org).\n\n- [x] done\n- [ ] open\n\n| a | b |\n|--|--:|\n| ${'wide '.repeat(60)} | 2 |\n\n\`\`\`js\n${'x'.repeat(300)}\n\`\`\`\n\n> quoted\n`;
const rich = (body, reply) => {
  reply.delta({ reasoning_content: 'thinking' });
  for (const word of RICH.split(/(?<= )/)) reply.tokens([[word, word.length % 3 ? 0 : null]]);
  reply.end({ usage: { total_tokens: 50 }, timings: { predicted_n: 80, predicted_per_second: 50, draft_n: 60, draft_n_accepted: 50 }, speculation: { speedup: 1.4, by_source: [{ name: 'ngram', drafted: 60, accepted: 50 }] } });
};
const PROPS = { model_alias: 'stories', default_generation_settings: { n_ctx: 4096, params: {} }, masks: [{ name: 'exit 8', cost: 0.5 }] };

async function faults(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`));
}

for (const colorScheme of ['light', 'dark']) {
  pageTest(`no fault that axe finds, ${colorScheme}`, { context: { colorScheme }, answer: rich, sources: ['ngram'], props: PROPS }, async (page) => {
    assert.deepEqual(await faults(page), []);
    await send(page, 'go');
    await ended(page);
    await answers(page).first().getByRole('button', { name: 'Another answer' }).click();
    await answers(page).first().getByText('2/2').waitFor();
    await ended(page);
    await lastAnswer(page).getByText('Reasoning').click();
    await page.getByRole('button', { name: 'Colour drafted tokens' }).click();
    assert.deepEqual(await faults(page), []);
    await page.getByRole('button', { name: 'Settings' }).click();
    await page.getByText('Advanced').click();
    assert.deepEqual(await faults(page), []);
  });
}

const held = gate();
pageTest('all of it by keyboard', {
  answer: async (body, reply) => {
    reply.text('begun');
    if (body.messages.at(-1).content === 'wait\nfor it') await held.promise;
    else reply.end();
  },
}, async (page, mock) => {
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.id);
  assert.equal(await focused(), 'text');
  await page.keyboard.type('wait');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('for it');
  await page.keyboard.press('Enter');
  await lastAnswer(page).getByText('begun').waitFor();
  await page.keyboard.press('Escape');
  await ended(page);
  held.open();
  assert.equal(mock.requests[0].messages[0].content, 'wait\nfor it');
  assert.equal(await lastAnswer(page).getAttribute('data-state'), 'stopped');
  for (let i = 0; i < 20 && await focused() !== 'Another answer'; i += 1) await page.keyboard.press('Shift+Tab');
  assert.equal(await focused(), 'Another answer');
  await page.keyboard.press('Enter');
  await lastAnswer(page).getByText('2/2').waitFor();
  await page.waitForFunction(() => document.activeElement.id === 'stop');
  await page.keyboard.press('Enter');
  await ended(page);
  await page.waitForFunction(() => document.activeElement.id === 'text');
  for (let i = 0; i < 20 && await focused() !== 'Earlier version'; i += 1) await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Enter');
  await lastAnswer(page).getByText('1/2').waitFor();
  await questions(page).first().getByRole('button', { name: 'Edit' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('textbox', { name: 'Edit the message' }).fill('edited');
  await page.keyboard.press('Control+Enter');
  await questions(page).getByText('edited').waitFor();
  await ended(page);
  assert.equal(await page.locator('#status').innerText(), 'The answer has ended');
});

pageTest('a phone: nothing wider than the screen, the list in a drawer', {
  context: { viewport: PHONE, hasTouch: true, isMobile: true }, answer: rich, sources: ['ngram'], props: PROPS,
}, async (page) => {
  const fits = async () => assert.deepEqual(await page.evaluate(() => [document.documentElement.scrollWidth, document.querySelector('#scroller').scrollWidth > document.querySelector('#scroller').clientWidth]), [PHONE.width, false]);
  await fits();
  await page.getByLabel('Message', { exact: true }).fill('a line');
  // Enter is a new line where there is no other key for one.
  await page.keyboard.press('Enter');
  assert.equal(await page.getByLabel('Message', { exact: true }).inputValue(), 'a line\n');
  await page.getByLabel('Message', { exact: true }).fill(`a line of ${'m'.repeat(200)}`);
  await page.getByRole('button', { name: 'Send' }).tap();
  await ended(page);
  await fits();
  const list = page.getByRole('navigation', { name: 'Kept conversations' });
  assert.ok(!await list.isVisible());
  const menu = page.getByRole('button', { name: 'Conversations' });
  await menu.tap();
  assert.ok(await list.isVisible());
  assert.deepEqual(await faults(page), []);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => getComputedStyle(document.getElementById('sidebar')).visibility === 'hidden');
  assert.equal(await menu.getAttribute('aria-expanded'), 'false');
  await menu.tap();
  await page.getByRole('button', { name: 'New conversation' }).first().tap();
  await page.getByText('What would you like to write?').waitFor();
  assert.ok(!await page.evaluate(() => document.querySelector('main').inert));
  for (const button of await page.locator('main > header button:visible, #composer button:visible').all()) {
    const { width, height } = await button.boundingBox();
    assert.ok(width >= 24 && height >= 24);
  }
  await page.getByRole('button', { name: 'Settings' }).tap();
  await fits();
});

pageTest('code is copied as it was written', { context: { permissions: ['clipboard-read', 'clipboard-write'] }, answer: (body, reply) => { reply.text('```py\nif a < b:\n\tpass\n```'); reply.end(); } }, async (page) => {
  await send(page, 'go');
  await ended(page);
  await page.getByRole('button', { name: 'Copy this code' }).click();
  await page.locator('#status').filter({ hasText: 'Copied' }).waitFor({ state: 'attached' });
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'if a < b:\n\tpass\n');
  await page.getByRole('button', { name: 'Copy this message' }).last().click();
  await page.waitForFunction(async () => (await navigator.clipboard.readText()).startsWith('```py'));
});

pageTest('plain HTTP from another machine will do', { host: ELSEWHERE }, async (page, mock) => {
  assert.equal(await page.evaluate(() => isSecureContext), false);
  await send(page, 'go');
  await ended(page);
  await page.getByRole('button', { name: 'Copy this message' }).last().click();
  await page.locator('#status').filter({ hasText: 'Copied' }).waitFor({ state: 'attached' });
  await page.getByLabel('Message', { exact: true }).focus();
  await page.keyboard.press('Control+v');
  assert.equal(await page.getByLabel('Message', { exact: true }).inputValue(), 'Hello.');
  await open(page, mock, new URL(page.url()).hash);
  await page.reload();
  await lastAnswer(page).waitFor();
});

pageTest('a browser that keeps nothing says so, and still converses', { opened: false }, async (page, mock) => {
  await page.addInitScript(() => { indexedDB.open = () => { throw new DOMException('no', 'InvalidStateError'); }; });
  await page.goto(mock.url);
  await page.getByText('conversations are lost with this page').waitFor();
  await send(page, 'go');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'Hello.');
  await page.getByRole('button', { name: 'New conversation' }).first().click();
  await page.getByRole('link', { name: 'go' }).click();
  assert.equal(await textOf(lastAnswer(page)), 'Hello.');
});

pageTest('who reads further up is left there while an answer grows', {
  answer: async (body, reply, { promise } = reading) => {
    reply.text('line\n\n'.repeat(100));
    await promise;
    reply.text('more\n\n'.repeat(20));
    reply.end();
  },
}, async (page) => {
  const scroller = page.locator('#scroller');
  const below = () => scroller.evaluate((e) => e.scrollHeight - e.clientHeight - e.scrollTop);
  await send(page, 'go');
  await lastAnswer(page).getByText('line').last().waitFor();
  await page.waitForFunction(() => { const e = document.getElementById('scroller'); return e.scrollHeight - e.clientHeight - e.scrollTop < 5 && e.scrollTop > 500; });
  await scroller.evaluate((e) => { e.scrollTop = 100; });
  await page.getByRole('button', { name: 'Go to the end' }).waitFor();
  reading.open();
  await ended(page);
  assert.equal(await scroller.evaluate((e) => e.scrollTop), 100);
  await page.getByRole('button', { name: 'Go to the end' }).click();
  assert.ok(await below() < 5);
});
const reading = gate();
