// One Chromium for all tests of a file. Each test gets a page of its own that keeps nothing of another's, and fails if the
// page logged an error, broke its policy or asked any other host for anything.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { startMock } from './mock.mjs';

/** A name under which a page is not trusted as one of this machine is: it has no clipboard, for one. */
export const ELSEWHERE = 'elsewhere.test';

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', `--host-resolver-rules=MAP ${ELSEWHERE} 127.0.0.1`] });
});
after(() => browser.close());

export const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 360, height: 740 };

/**
 * A test with a server and a page. `options` are the server's, and `context`, the browser's; `expected` are patterns of
 * console errors that belong to the test, as a refused request does.
 */
export function pageTest(name, options, body) {
  test(name, { timeout: 30_000 }, async () => {
    const { context: browserOptions = {}, expected = [], opened = true, ...mockOptions } = options;
    const mock = await startMock(mockOptions);
    const context = await browser.newContext({ viewport: WIDE, reducedMotion: 'reduce', ...browserOptions });
    const wrong = [];
    const watch = (page) => {
      page.setDefaultTimeout(8000);
      page.on('pageerror', (error) => wrong.push(`error: ${error.stack}`));
      page.on('dialog', (dialog) => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
      page.on('console', (message) => {
        if (message.type() === 'error' && !expected.some((pattern) => pattern.test(message.text()))) wrong.push(`console: ${message.text()}`);
      });
      page.on('request', (request) => {
        if (!request.url().startsWith(mock.url) && !request.url().startsWith('blob:')) wrong.push(`request: ${request.url()}`);
      });
    };
    context.on('page', watch);
    await context.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
      });
    });
    try {
      const page = await context.newPage();
      if (opened) await open(page, mock);
      await body(page, mock, context);
      assert.deepEqual(wrong, []);
    } finally {
      await context.close();
      await mock.close();
    }
  });
}

/** Opens the page, or opens it again. */
export async function open(page, mock, hash = '') {
  await page.goto(mock.url + hash);
  await page.locator('#model').filter({ hasText: /./ }).waitFor();
}

export async function send(page, text) {
  await page.getByLabel('Message', { exact: true }).fill(text);
  await page.keyboard.press('Enter');
}

export const answers = (page) => page.locator('.message.assistant');
export const questions = (page) => page.locator('.message.user');
export const lastAnswer = (page) => answers(page).last();

/** The texts of messages, as they are seen. */
export const texts = async (messages) => (await messages.locator('.content').allInnerTexts()).map((text) => text.trim());
/** That of one message, which may be on its way still. */
export const textOf = async (message) => {
  await message.locator('.content').first().waitFor({ state: 'attached' });
  return (await texts(message))[0];
};

/** Waits until no answer is being written. */
export async function ended(page) {
  await page.locator('.message.assistant[data-state="writing"]').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Send' }).first().waitFor();
}

/** A promise, and what fulfils it. */
export function gate() {
  let open;
  const promise = new Promise((resolve) => { open = resolve; });
  return { promise, open };
}

/** The texts that are painted, by the number of their colour. */
export function painted(page) {
  return page.evaluate(() => Object.fromEntries([...CSS.highlights].map(([name, ranges]) => [
    name,
    [...ranges].map((r) => r.startContainer.data.slice(r.startOffset, r.endOffset)),
  ]).filter(([, texts]) => texts.length)));
}
