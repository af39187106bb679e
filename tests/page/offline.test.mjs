// The page without its server.

import assert from 'node:assert/strict';
import { answers, ended, pageTest, questions, send, texts } from './browser.mjs';

/** What a browser says of a server that is not there. */
const GONE = [/Failed to load resource/, /ERR_CONNECTION_REFUSED/];

pageTest('conversations can be read when the server is gone', { expected: GONE }, async (page, mock) => {
  await send(page, 'Are you there?');
  await ended(page);
  await page.evaluate(() => navigator.serviceWorker.ready);
  await mock.close();
  await page.reload();
  await answers(page).first().waitFor();
  assert.deepEqual([await texts(questions(page)), await texts(answers(page))], [['Are you there?'], ['Hello.']]);
});

pageTest('a newer page takes the place of the one that was kept', {}, async (page, mock) => {
  const kept = () => page.evaluate(() => caches.keys());
  await page.evaluate(() => navigator.serviceWorker.ready);
  assert.deepEqual(await kept(), ['first']);
  mock.version = 'second';
  await page.reload();
  await page.waitForFunction(async () => (await caches.keys()).join() === 'second');
});
