// Colours the tokens that were drafted and accepted. The page's elements stay as they are: the browser paints ranges of
// the text by a name, and the style sheet says how (`::highlight(drafted-N)`).

export const CAN_COLOUR = typeof Highlight === 'function' && Boolean(globalThis.CSS?.highlights);
const COLOURS = 8;
const slots = new Map();

/** The number of a source's colour: 0 for what was looked up in the text, others as they come. */
export function slotOf(source) {
  if (/ngram|n-gram|lookup|prompt/i.test(source)) return 0;
  if (!slots.has(source)) slots.set(source, 1 + (slots.size % (COLOURS - 1)));
  return slots.get(source);
}

function highlight(slot) {
  const name = `drafted-${slot}`;
  if (!CSS.highlights.has(name)) CSS.highlights.set(name, new Highlight());
  return CSS.highlights.get(name);
}

/** The colours of one text that is shown as markdown. */
export class Colours {
  /** By block: the ranges that were painted, with their slots. */
  #painted = new Map();

  /** `runs` are pairs of a length in the text and an index of `sources`, or null. */
  paint(blocks, runs, sources) {
    const elements = new Set(blocks.map(({ element }) => element));
    for (const element of [...this.#painted.keys()]) if (!elements.has(element)) this.#unpaint(element);
    const drafted = [];
    let at = 0;
    for (const [length, source] of runs) {
      if (source !== null) drafted.push({ start: at, end: at + length, slot: slotOf(sources[source] ?? '') });
      at += length;
    }
    const last = blocks.findLast(({ element }) => element);
    for (const block of blocks) {
      if (!block.element || (this.#painted.has(block.element) && block !== last)) continue;
      this.#unpaint(block.element);
      this.#painted.set(block.element, paintBlock(block, drafted));
    }
  }

  clear() {
    for (const element of [...this.#painted.keys()]) this.#unpaint(element);
  }

  #unpaint(element) {
    for (const { range, slot } of this.#painted.get(element) ?? []) highlight(slot).delete(range);
    this.#painted.delete(element);
  }
}

function paintBlock({ start, raw, element }, drafted) {
  const end = start + raw.length;
  const inside = drafted.filter((run) => run.end > start && run.start < end);
  if (inside.length === 0) return [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, (node) => (
    node.nodeType === Node.ELEMENT_NODE && node.classList.contains('bar') ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT
  ));
  const nodes = [];
  while (walker.nextNode()) if (walker.currentNode.nodeType === Node.TEXT_NODE) nodes.push(walker.currentNode);
  const places = placed(raw, nodes.map(({ data }) => data));
  const ranges = [];
  let next = 0;
  for (const [n, node] of nodes.entries()) {
    let begin = 0;
    let open = null;
    for (let i = 0; i <= node.length; i += 1) {
      const place = i < node.length ? start + places[n][i] : Infinity;
      while (inside[next]?.end <= place && i < node.length) next += 1;
      const run = inside[next]?.start <= place && i < node.length ? inside[next] : null;
      if (run === open) continue;
      if (open) ranges.push(...paint(node, begin, i, open.slot));
      open = run;
      begin = i;
    }
  }
  return ranges;
}

/** Spaces around words are not painted. */
function paint(node, from, to, slot) {
  const text = node.data.slice(from, to);
  const startOffset = from + text.length - text.trimStart().length;
  const endOffset = to - (text.length - text.trimEnd().length);
  if (startOffset >= endOffset) return [];
  const range = new StaticRange({ startContainer: node, startOffset, endContainer: node, endOffset });
  highlight(slot).add(range);
  return [{ range, slot }];
}

/**
 * Where each character of rendered texts stands in the markdown that they come from. What is rendered is the source
 * without its markup, in the same order, so each word is looked for behind the one before it.
 */
export function placed(markdown, texts) {
  // The address of a link is not to be taken for the words that follow it; in code, brackets are text.
  const code = /^ {0,3}(?:```|~~~)/.test(markdown);
  const source = code ? markdown : markdown.replace(/\]\([^()\s]*(?:\s+"[^"]*")?\)/g, (link) => '\0'.repeat(link.length));
  let at = 0;
  return texts.map((text) => {
    const places = new Array(text.length);
    for (const { 0: word, index } of text.matchAll(/\s|\S+/g)) {
      if (word.trim() === '') {
        places[index] = Math.min(at, source.length - 1);
        if (/\s/.test(source[at] ?? '')) at += 1;
        continue;
      }
      const found = inOnePiece(source, word, at) ?? byCharacter(source, word, at);
      for (let i = 0; i < word.length; i += 1) places[index + i] = found[i];
      at = found[word.length - 1] + 1;
    }
    return places;
  });
}

/** Markup between two words is short, but for the address of a link. */
const FAR = 8;

function inOnePiece(source, word, at) {
  const begin = source.indexOf(word, at);
  if (begin < 0 || (begin - at > FAR && byCharacter(source, word, at).complete)) return null;
  return Array.from({ length: word.length }, (_, i) => begin + i);
}

/** Markup may stand inside a word (`**be**ginning`), and characters may be written as entities. */
function byCharacter(source, word, at) {
  const places = [];
  places.complete = true;
  let next = at;
  for (let i = 0; i < word.length; i += 1) {
    const found = source.indexOf(word[i], next);
    if (found >= 0 && found - next <= FAR) next = found + 1;
    else places.complete = false;
    places.push(Math.max(0, Math.min(next, source.length) - 1));
  }
  return places;
}
