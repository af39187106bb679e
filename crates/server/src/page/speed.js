// The lines under an answer: how fast it comes, and which part of it was drafted by what.

import { h } from './dom.js';
import { tokensPerPass } from './answer.js';
import { slotOf } from './drafted.js';

const digits = (value) => (value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(1));
const count = (value, what) => `${value.toLocaleString('en')} ${what}${value === 1 ? '' : 's'}`;

/** Elements for the figures of a message; none where nothing is known. */
export function speedLines(message) {
  const { figures, state } = message;
  if (!figures || !figures.tokens) return [];
  // A server that does not count them may send several at once.
  const items = [`${figures.counted ? '' : 'about '}${count(figures.tokens, 'token')}`];
  if (figures.perSecond) items.push(`${figures.exact ? '' : 'about '}${digits(figures.perSecond)} tokens/s`);
  const perPass = tokensPerPass(figures);
  if (perPass) items.push(`${perPass.toFixed(2)} tokens per pass`);
  if (state !== 'writing') {
    if (figures.wait !== null) items.push(`first token after ${figures.wait.toFixed(figures.wait < 10 ? 2 : 0)} s`);
    if (figures.prompt && figures.promptPerSecond) items.push(`prompt of ${count(figures.prompt, 'token')}`);
    if (message.mask) items.push(`mask ${message.mask}`);
  }
  const line = h('p', { class: 'speed' });
  if (figures.speedup) {
    line.append(h('span', { class: 'speedup', title: 'times the speed of decoding without drafts' }, `${figures.speedup.toFixed(2)}×`));
  }
  for (const item of items) line.append(h('span', {}, item));
  return figures.accepted ? [line, sources(figures)] : [line];
}

/** A bar of all tokens by who wrote them, and what each colour means. */
function sources({ tokens, bySource }) {
  const bar = h('span', { class: 'share', 'aria-hidden': true });
  const names = h('span', { class: 'names' });
  for (const { name, drafted, accepted } of bySource) {
    const slot = slotOf(name);
    const part = h('i', { class: `part drafted-${slot}` });
    // A style attribute is what the page's policy forbids; this is not one.
    part.style.flexBasis = `${(100 * accepted) / Math.max(tokens, 1)}%`;
    bar.append(part);
    const figure = drafted === null ? `${accepted}` : `${accepted} of ${drafted}`;
    names.append(h('span', { title: `tokens of ${name} that were accepted` }, h('i', { class: `dot drafted-${slot}` }), `${name} ${figure}`));
  }
  return h('p', { class: 'sources' }, bar, names);
}
