// An answer as it arrives: its text, which tokens were drafted by what, and how fast it comes. It knows neither the
// network nor the page.

/** The part of a message that an answer fills in. */
export function emptyAnswer() {
  return { content: '', reasoning: '', finish: null, sources: [], runs: { content: [], reasoning: [] }, figures: null };
}

export class Answer {
  #message;
  #begun;
  #first = null;
  #chunks = 0;
  /** By source: tokens of the text that it drafted. */
  #accepted = [];
  #undrafted = 0;

  constructor(message, now) {
    this.#message = message;
    this.#begun = now;
  }

  take(chunk, now) {
    const message = this.#message;
    const choice = chunk.choices?.[0];
    if (Array.isArray(chunk.sources)) message.sources = chunk.sources.map(String);
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    const reasoning = text(choice?.delta?.reasoning_content ?? choice?.delta?.reasoning);
    const content = text(choice?.delta?.content);
    if (reasoning || content) {
      this.#first ??= now;
      this.#chunks += 1;
      this.#append(reasoning, content, chunk.drafted, chunk.pieces);
    }
    this.#measure(chunk, now);
  }

  #append(reasoning, content, drafted, pieces) {
    const { runs, sources } = this.#message;
    const whole = reasoning.length + content.length;
    const known = Array.isArray(drafted) ? drafted.map((source) => (sources[source] === undefined ? null : source)) : [];
    for (const source of known) {
      if (source === null) this.#undrafted += 1;
      else this.#accepted[source] = (this.#accepted[source] ?? 0) + 1;
    }
    // Lengths that do not add up would colour other words than were drafted.
    const fits = Array.isArray(pieces) && pieces.length === known.length
      && pieces.every((length) => Number.isInteger(length) && length >= 0)
      && pieces.reduce((sum, length) => sum + length, 0) === whole;
    let at = 0;
    for (const [i, length] of (fits ? pieces : [whole]).entries()) {
      const source = fits ? known[i] : null;
      const ofReasoning = Math.min(length, Math.max(0, reasoning.length - at));
      extend(runs.reasoning, ofReasoning, source);
      extend(runs.content, length - ofReasoning, source);
      at += length;
    }
    this.#message.reasoning += reasoning;
    this.#message.content += content;
  }

  #measure({ timings, speculation, usage }, now) {
    const before = this.#message.figures ?? {};
    const counted = this.#undrafted + this.#accepted.reduce((sum, n) => sum + (n ?? 0), 0);
    const seconds = this.#first === null ? 0 : (now - this.#first) / 1000;
    const tokens = timings?.predicted_n ?? usage?.completion_tokens ?? (counted || this.#chunks);
    this.#message.figures = {
      tokens,
      counted: Boolean(timings || usage || counted || before.counted),
      // The clock here starts with the first token, so that token is not in the time.
      perSecond: number(timings?.predicted_per_second) ?? (seconds > 0.2 ? (tokens - 1) / seconds : null),
      exact: Boolean(timings),
      wait: this.#first === null ? null : (this.#first - this.#begun) / 1000,
      prompt: usage?.prompt_tokens ?? timings?.prompt_n ?? before.prompt ?? null,
      promptPerSecond: number(timings?.prompt_per_second) ?? before.promptPerSecond ?? null,
      total: usage?.total_tokens ?? inContext(timings) ?? before.total ?? null,
      drafted: number(timings?.draft_n) ?? before.drafted ?? null,
      accepted: number(timings?.draft_n_accepted) ?? (counted ? counted - this.#undrafted : before.accepted ?? null),
      speedup: number(speculation?.speedup) ?? before.speedup ?? null,
      bySource: Array.isArray(speculation?.by_source) ? speculation.by_source.map(ofSource) : this.#bySource(before.bySource),
    };
  }

  /** What the chunks said, as long as the server has not summed it up. */
  #bySource(before = []) {
    if (before.some(({ drafted }) => drafted !== null)) return before;
    return this.#message.sources
      .map((name, i) => ({ name, drafted: null, accepted: this.#accepted[i] ?? 0 }))
      .filter(({ accepted }) => accepted > 0);
  }
}

/** llama-server counts the tokens of a prompt that it had already by themselves. */
function inContext(timings) {
  return timings?.prompt_n === undefined ? null : (timings.cache_n ?? 0) + timings.prompt_n + (timings.predicted_n ?? 0);
}

const text = (value) => (typeof value === 'string' ? value : '');
const number = (value) => (Number.isFinite(value) ? value : null);
const ofSource = ({ name, drafted, accepted }) => ({ name: String(name), drafted: number(drafted), accepted: number(accepted) ?? 0 });

/** Runs are pairs of a length and a source, or null; neighbours differ in their source. */
function extend(runs, length, source) {
  if (length === 0) return;
  const last = runs.at(-1);
  if (last && last[1] === source) last[0] += length;
  else runs.push([length, source]);
}

/** Each pass of the whole model writes one token of its own, behind the drafted ones that it accepts. */
export function tokensPerPass({ tokens, accepted }) {
  return accepted && tokens > accepted ? tokens / (tokens - accepted) : null;
}
