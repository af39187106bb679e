// What only this server tells: who drafted which token, what it gave, and masks.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ended, gate, lastAnswer, open, pageTest, painted, send, textOf } from './browser.mjs';

const coloursOn = (page) => page.getByRole('button', { name: 'Colour drafted tokens' }).click();
const MASKS = [{ name: 'every third', description: 'The MLP of every third layer is left out', cost: 0.62 }, { name: 'exit 8', description: 'The first 8 layers', cost: 0.5 }];
const PROPS = { model_alias: 'stories', default_generation_settings: { n_ctx: 4096, params: {} } };
const SOURCES = ['ngram', 'every third'];

pageTest('accepted tokens are coloured by who drafted them, in markdown too', {
  sources: SOURCES,
  answer: (body, reply) => {
    reply.tokens([['# A', null], [' heading', 0], ['\n\n', 0]]);
    reply.tokens([['Some', null], [' **bold', 1], ['** text', 1], [' & `co', 0], ['de`', 0], [', then', null], [' more', 0], ['.', null]]);
    reply.tokens([['\n\n| a', 1], [' | b |\n|--|--|\n| x', null], [' | yy |\n', 0]]);
    reply.tokens([['\n```py\n', null], ['x = ', 1], ['1\n', null], ['```\n', null], ['[li', null], ['nk](http://more.example/x)', 0], [' en', 1], ['d', null]]);
    reply.end();
  },
}, async (page, mock) => {
  await send(page, 'go');
  await ended(page);
  assert.deepEqual(await painted(page), {});
  await coloursOn(page);
  assert.deepEqual(await painted(page), {
    'drafted-0': ['heading', '&', 'code', 'more', 'yy', 'nk'],
    'drafted-1': ['bold', 'text', 'a', 'x =', 'en'],
  });
  await page.reload();
  await lastAnswer(page).waitFor();
  await page.waitForFunction(() => CSS.highlights.get('drafted-1')?.size === 5);
  assert.equal(await page.getByRole('button', { name: 'Colour drafted tokens' }).getAttribute('aria-pressed'), 'true');
  await coloursOn(page);
  assert.deepEqual(await painted(page), {});
  await open(page, mock);
  assert.deepEqual(await painted(page), {});
});

const [first, second] = [gate(), gate()];
pageTest('colours and figures come with the text', {
  sources: SOURCES,
  answer: async (body, reply) => {
    reply.tokens([['One', null], [' two', 0], [' three', 0]], { timings: { predicted_n: 3, predicted_per_second: 30, draft_n: 2, draft_n_accepted: 2 } });
    await first.promise;
    reply.tokens([[' four', null], [' five', 1]], { timings: { predicted_n: 5, predicted_per_second: 44.4, draft_n: 5, draft_n_accepted: 3 } });
    await second.promise;
    reply.end({
      usage: { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25 },
      timings: {
        prompt_n: 20, prompt_per_second: 300, predicted_n: 5, predicted_per_second: 50.6, draft_n: 5, draft_n_accepted: 3,
      },
      speculation: { speedup: 1.567, by_source: [{ name: 'ngram', drafted: 3, accepted: 2 }, { name: 'every third', drafted: 2, accepted: 1 }] },
    });
  },
}, async (page) => {
  await coloursOn(page);
  await send(page, 'go');
  const figures = lastAnswer(page).locator('.figures');
  await figures.getByText('30.0 tokens/s').waitFor();
  assert.match(await figures.innerText(), /3 tokens/);
  // One pass wrote a token of its own and accepted two.
  assert.match(await figures.innerText(), /3\.00 tokens per pass/);
  assert.match(await figures.innerText(), /ngram 2/);
  assert.deepEqual(await painted(page), { 'drafted-0': ['two three'] });
  first.open();
  await figures.getByText('44.4 tokens/s').waitFor();
  assert.match(await figures.innerText(), /2\.50 tokens per pass/);
  assert.match(await figures.innerText(), /every third 1/);
  assert.deepEqual(await painted(page), { 'drafted-0': ['two three'], 'drafted-1': ['five'] });
  second.open();
  await ended(page);
  assert.match(await figures.innerText(), /1\.57×/);
  assert.match(await figures.innerText(), /50\.6 tokens\/s/);
  assert.match(await figures.innerText(), /ngram 2 of 3/);
  assert.match(await figures.innerText(), /every third 1 of 2/);
  assert.equal(await page.locator('#context').innerText(), '25 of 4,096 tokens');
  const widths = await figures.locator('.part').evaluateAll((parts) => parts.map((part) => part.style.flexBasis));
  assert.deepEqual(widths, ['40%', '20%']);
});

pageTest('lengths that do not fit the text colour nothing, and the text is whole', {
  sources: SOURCES,
  answer: (body, reply) => {
    reply.text('one two', { drafted: [0, 0], pieces: [3, 3] });
    reply.text(' three', { drafted: [0], pieces: [-6] });
    reply.text(' four', { drafted: [7], pieces: [5] });
    reply.text(' five', { drafted: 'x', pieces: {} });
    reply.tokens([[' six', 1]]);
    reply.end();
  },
}, async (page) => {
  await coloursOn(page);
  await send(page, 'go');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'one two three four five six');
  assert.deepEqual(await painted(page), { 'drafted-1': ['six'] });
});

pageTest('reasoning is folded, and its drafted tokens are coloured', {
  sources: SOURCES,
  answer: (body, reply) => {
    reply.delta({ reasoning_content: 'Let me think' }, { drafted: [null, 0], pieces: [7, 5] });
    reply.delta({ reasoning_content: ' so.', content: 'Well' }, { drafted: [1, 0], pieces: [4, 4] });
    reply.end();
  },
}, async (page, mock) => {
  await coloursOn(page);
  await send(page, 'go');
  await ended(page);
  assert.equal(await textOf(lastAnswer(page)), 'Well');
  const thought = lastAnswer(page).locator('.reasoning .markdown');
  assert.ok(!await thought.isVisible());
  await lastAnswer(page).getByText('Reasoning').click();
  assert.equal((await thought.innerText()).trim(), 'Let me think so.');
  assert.deepEqual(await painted(page), { 'drafted-0': ['think', 'Well'], 'drafted-1': ['so.'] });
  await send(page, 'and');
  await ended(page);
  assert.deepEqual(mock.requests[1].messages[1], { role: 'assistant', content: 'Well' });
});

pageTest('a mask can be picked in the settings, is sent, and is told', { props: { ...PROPS, masks: MASKS } }, async (page, mock) => {
  const mask = page.getByLabel('Mask');
  const settings = page.getByRole('button', { name: 'Settings' });
  const pick = async (name) => {
    await settings.click();
    await page.getByText('Advanced').click();
    await mask.selectOption(name);
    await page.getByRole('button', { name: 'Save' }).click();
  };
  assert.equal(await page.getByText('Mask').filter({ visible: true }).count(), 0);
  await send(page, 'one');
  await ended(page);
  await pick('exit 8');
  await settings.click();
  assert.deepEqual(await mask.locator('option').allTextContents(), ['none', 'every third, 62 % of the work', 'exit 8, 50 % of the work']);
  assert.equal(await mask.inputValue(), 'exit 8');
  assert.equal(await mask.locator('option').last().getAttribute('title'), 'The first 8 layers');
  await page.getByText('A mask leaves parts of the model out').waitFor();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await send(page, 'two');
  await ended(page);
  assert.deepEqual(mock.requests.map((request) => request.mask), [undefined, 'exit 8']);
  assert.match(await lastAnswer(page).locator('.figures').innerText(), /mask exit 8/);
  const { props } = mock;
  mock.props = PROPS;
  await open(page, mock);
  await settings.click();
  assert.ok(!await page.getByText('Advanced').isVisible());
  await page.getByRole('button', { name: 'Save' }).click();
  await send(page, 'three');
  await ended(page);
  assert.equal(mock.requests[2].mask, undefined);
  mock.props = props;
  await open(page, mock);
  await send(page, 'four');
  await ended(page);
  assert.equal(mock.requests[3].mask, 'exit 8');
});

pageTest('what the file calls the model is shown, and no path of the server', {
  props: { ...PROPS, model_alias: '/home/someone/models/a-q4_0.gguf', model_path: '/home/someone/models/a-q4_0.gguf', model_name: 'A 1B' },
}, async (page, mock) => {
  const shown = () => page.locator('#model').evaluate((e) => [e.innerText, e.title]);
  assert.deepEqual(await shown(), ['A 1B', 'requests name it a-q4_0.gguf']);
  assert.ok(!(await page.content()).includes('someone'));
  mock.props = { ...mock.props, model_name: null };
  await open(page, mock);
  assert.deepEqual(await shown(), ['a-q4_0.gguf', '']);
  assert.ok(!(await page.content()).includes('someone'));
});

pageTest('of several models one can be picked, is asked, and is kept', {
  props: { role: 'router', model_alias: 'spec-run' },
  models: [{ id: 'a', status: { value: 'unloaded' } }, { id: 'b', status: { value: 'loaded' } }, { id: '<c>', status: { value: 'unloaded' } }],
  propsOf: {
    b: { ...PROPS, model_alias: 'b', model_name: 'The second' },
    '<c>': { ...PROPS, model_alias: '<c>', model_name: 'The third' },
  },
}, async (page, mock) => {
  const menu = page.getByRole('combobox', { name: 'Model' });
  // The one that is loaded, until another is picked.
  assert.equal(await menu.inputValue(), 'b');
  assert.equal(await page.locator('#model').innerText(), 'The second');
  assert.deepEqual(await menu.locator('option').allInnerTexts(), ['a', 'b', '<c>']);
  await menu.selectOption('<c>');
  await send(page, 'one');
  await ended(page);
  assert.equal(mock.requests.at(-1).model, '<c>');
  await open(page, mock);
  assert.equal(await menu.inputValue(), '<c>');
  assert.equal(await page.locator('#model').innerText(), 'The third');
  // It is not there any more.
  mock.models = mock.models.slice(0, 2);
  await open(page, mock);
  assert.equal(await menu.inputValue(), 'b');
});

pageTest('a server with one model has no menu of models', {}, async (page) => {
  assert.ok(await page.locator('#models').isHidden());
});

test('each rendered character is found in the markdown that it comes from', async () => {
  globalThis.document ??= {};
  const { placed } = await import('../../crates/server/src/page/drafted.js');
  const where = (source, ...texts) => placed(source, texts).map((places, n) => (
    [...places].map((place, i) => (source[place] === texts[n][i] ? place : null))
  ));
  assert.deepEqual(where('a b', 'a b'), [[0, 1, 2]]);
  assert.deepEqual(where('**be**gin', 'be', 'gin'), [[2, 3], [6, 7, 8]]);
  assert.deepEqual(where('*f*oo foo', 'f', 'oo', ' foo'), [[1], [3, 4], [5, 6, 7, 8]]);
  assert.deepEqual(where('[x](http://a.b/the) the', 'x', ' the'), [[1], [null, 20, 21, 22]]);
  assert.deepEqual(where('\\*a\\*', '*a*'), [[1, 2, 4]]);
  assert.deepEqual(where('a &lt; b', 'a ', '<', ' b'), [[0, 1], [null], [null, 7]]);
});
