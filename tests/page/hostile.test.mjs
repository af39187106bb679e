// Text that would like to be a program. Every test of a page also fails on a dialog, on a request to another host and on
// anything that the page's policy had to stop.

import assert from 'node:assert/strict';
import { ended, gate, lastAnswer, pageTest, send, textOf } from './browser.mjs';

const answering = (text) => (body, reply) => {
  // In pieces: what is harmless as a whole may not be when it is cut.
  for (let at = 0; at < text.length; at += 7) reply.text(text.slice(at, at + 7));
  reply.end();
};

const HOSTILE = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '<img src="http://evil.example/p.png">',
  '![p](http://evil.example/p.png)',
  '![p](x" onerror="alert(1))',
  '<svg onload=alert(1)><animate onbegin=alert(1) attributeName=x dur=1s></svg>',
  '<iframe src="javascript:alert(1)"></iframe>',
  '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
  '<a href="javascript:alert(1)">raw link</a>',
  '[js](javascript:alert(1))',
  '[js](JaVaScRiPt&colon;alert(1))',
  '[js](java\tscript:alert(1))',
  '[data](data:text/html,<script>alert(1)</script>)',
  '[vb](vbscript:msgbox(1))',
  '[relative](/v1/models)',
  '<javascript:alert(1)>',
  '[r]: javascript:alert(1)\n\n[r]',
  '<style>body{display:none}</style>',
  '<link rel=stylesheet href=http://evil.example/x.css>',
  '<meta http-equiv=refresh content="0;url=http://evil.example/">',
  '<base href="http://evil.example/">',
  '<form action="http://evil.example/"><button>Send</button></form>',
  '<object data="http://evil.example/"></object><embed src="http://evil.example/">',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
  '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
  '<div style="position:fixed;inset:0;background:red">over all</div>',
  '<b onclick=alert(1)>bold</b> <b>plain bold</b>',
  '<input autofocus onfocus=alert(1)>',
  '<template><script>alert(1)</script></template>',
  '<details open ontoggle=alert(1)>',
  '<a id="text" name="status">shadow</a>',
  '`<script>alert(1)</script>`',
  '```html" onload="alert(1)\n<script>alert(1)</script>\n```',
  '| <img src=x onerror=alert(1)> |\n|--|\n| <script>alert(1)</script> |',
].join('\n\n');

pageTest('nothing that an answer says is run, fetched or laid over the page', { answer: answering(HOSTILE) }, async (page) => {
  await send(page, 'go');
  await ended(page);
  const found = await lastAnswer(page).evaluate((answer) => {
    const content = answer.querySelector('.content');
    const inside = [...content.querySelectorAll('*')];
    const own = (element) => element.closest('.bar');
    return {
      tags: [...new Set(inside.filter((e) => !own(e)).map((e) => e.localName))].sort(),
      attributes: [...new Set(inside.filter((e) => !own(e)).flatMap((e) => e.getAttributeNames()))].sort(),
      links: [...content.querySelectorAll('a[href]')].map((a) => a.getAttribute('href')),
      rels: [...content.querySelectorAll('a[href]')].every((a) => a.rel === 'noopener noreferrer' && a.target === '_blank'),
    };
  });
  const allowed = ['a', 'b', 'blockquote', 'code', 'div', 'em', 'figcaption', 'figure', 'li', 'ol', 'p', 'pre', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul'];
  assert.deepEqual(found.tags.filter((tag) => !allowed.includes(tag)), []);
  assert.deepEqual(found.attributes.filter((name) => !['class', 'href', 'rel', 'tabindex', 'target', 'title'].includes(name)), []);
  // The two images, as links that nobody has followed.
  assert.ok(found.links.every((href) => href === 'http://evil.example/p.png'), `${found.links}`);
  assert.ok(found.rels);
  const text = await textOf(lastAnswer(page));
  for (const shown of ['<script>alert(1)</script>', '<iframe src="javascript:alert(1)">', '<style>body{display:none}</style>']) {
    assert.ok(text.includes(shown), `what was written is to be seen: ${shown}`);
  }
  assert.equal(await lastAnswer(page).locator('b').innerText(), 'plain bold');
  assert.ok(await page.getByLabel('Message', { exact: true }).isVisible());
});

pageTest('questions, titles, models, masks and errors are text', {
  props: { model_name: '<img src=x onerror=alert(1)>', model_alias: '<img src=x onerror=alert(5)>', masks: [{ name: '<script>alert(2)</script>', description: '"><script>', cost: 0.5 }] },
  answer: (body, reply) => reply.refuse(400, { message: '<img src=x onerror=alert(3)>' }),
  expected: [/400/],
}, async (page) => {
  await send(page, '<img src=x onerror=alert(4)>');
  await lastAnswer(page).locator('.end').waitFor();
  assert.equal(await lastAnswer(page).locator('.end').innerText(), '<img src=x onerror=alert(3)> (400)');
  assert.equal(await page.locator('#model').innerText(), '<img src=x onerror=alert(1)>');
  assert.equal(await page.locator('#title').innerText(), '<img src=x onerror=alert(4)>');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByText('Advanced').click();
  assert.equal(await page.locator('#set-mask option').last().innerText(), '<script>alert(2)</script>, 50 % of the work');
  assert.equal(await page.locator('img, .message script, #set-mask script').count(), 0);
});

const table = `| ${Array.from({ length: 30 }, (_, i) => `column ${i}`).join(' | ')} |\n|${'--|'.repeat(30)}\n${`| ${'cell | '.repeat(30)}\n`.repeat(300)}`;
pageTest('a giant table scrolls by itself, and the page stays usable', { answer: (body, reply) => { reply.text(table); reply.end(); } }, async (page, mock) => {
  await send(page, 'go');
  await ended(page);
  assert.equal(await lastAnswer(page).locator('td').count(), 300 * 30);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  const [inner, outer] = await lastAnswer(page).locator('.table').evaluate((e) => [e.scrollWidth, e.clientWidth]);
  assert.ok(inner > outer);
  mock.answer = answering('a few words');
  await send(page, 'still there?');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'a few words');
});

pageTest('deep nesting and long lines are shown as they are', {
  answer: (body, reply) => {
    reply.text(`${'>'.repeat(20000)} deep\n\n${'['.repeat(5000)}\n\n${'*_'.repeat(3000)}\n\n${'x'.repeat(100000)}\n\nthe end`);
    reply.end();
  },
}, async (page) => {
  await send(page, 'go');
  await lastAnswer(page).getByText('the end').waitFor();
  await ended(page);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
});

const held = gate();
pageTest('a long answer does not make the page slow', {
  answer: async (body, reply) => {
    for (let i = 0; i < 400; i += 1) reply.text(`Paragraph ${i} has *some* words, \`code\` and a [link](http://example.org/${i}).\n\n`);
    await held.promise;
    for (let i = 0; i < 200; i += 1) {
      reply.text(`word${i} `);
      await new Promise(setImmediate);
    }
    reply.end();
  },
}, async (page) => {
  await send(page, 'go');
  await lastAnswer(page).getByText('Paragraph 399').waitFor();
  await lastAnswer(page).locator('.content p').first().evaluate((p) => { p.dataset.mark = 'kept'; });
  held.open();
  await ended(page);
  assert.match(await textOf(lastAnswer(page)), /word199$/);
  // What has been shown stays the same element: a selection in it survives.
  assert.equal(await lastAnswer(page).locator('[data-mark="kept"]').count(), 1);
});
