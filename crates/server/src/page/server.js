// The server that this page came from: what it is, its key, and its answers. Ours and llama-server say what they are at
// /props; any other server of OpenAI's chat completions will do.

import { events } from './sse.js';

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

export class ServerError extends Error {}

export class Server {
  /** What is known of it: see `load`. */
  info = { model: '', models: [], name: '', context: null, defaults: {}, masks: [], timings: false };
  #askForKey;
  #asking = null;

  /** `askForKey(wrong)` gives a key, or null. */
  constructor(askForKey) {
    this.#askForKey = askForKey;
  }

  /** Finds out what the server is. While it cannot answer, `waiting(why)` is called, and it is asked again. Of several models it
   * is asked for `wanted`, if there is one of that name. */
  async load(waiting, wanted) {
    for (;;) {
      let response;
      try {
        response = await this.#fetch('props');
      } catch (error) {
        if (error instanceof ServerError) throw error;
        waiting('The server does not answer. Is it still running?');
        await pause(2000);
        continue;
      }
      if (response.status === 503) {
        waiting('The server is loading its model.');
        await pause(1000);
        continue;
      }
      const props = response.ok ? await response.json().catch(() => null) : null;
      if (props?.role === 'router') {
        const models = await this.#models();
        const first = models.find(({ status }) => status === 'loaded') ?? models[0];
        this.info = { ...ofProps(props), models: models.map(({ id }) => id) };
        await this.choose(this.info.models.includes(wanted) ? wanted : first?.id ?? '');
      } else this.info = props ? ofProps(props) : { ...this.info, model: (await this.#models())[0]?.id ?? '' };
      return;
    }
  }

  async #models() {
    const response = await this.#fetch('v1/models');
    const list = response.ok ? await response.json().catch(() => null) : null;
    return (list?.data ?? []).map(({ id, status }) => ({ id: String(id ?? ''), status: status?.value }));
  }

  /** Asks another of the server's models from now on. What that is, is known once it is loaded. */
  async choose(model) {
    const { models } = this.info;
    this.info = { ...ofProps({}), models, model };
    const response = await this.#fetch(`props?model=${encodeURIComponent(model)}&autoload=false`);
    const props = response.ok ? await response.json().catch(() => null) : null;
    if (props && this.info.model === model) this.info = { ...ofProps(props), models, model };
  }

  async #fetch(path, options = {}) {
    for (let wrong = false; ; wrong = true) {
      const headers = { ...options.headers };
      const key = sessionStorage.getItem('key');
      if (key) headers.authorization = `Bearer ${key}`;
      const response = await fetch(path, { ...options, headers });
      if (response.status !== 401) return response;
      // Another request may have got a key meanwhile.
      if (sessionStorage.getItem('key') !== key) continue;
      this.#asking ??= this.#askForKey(wrong || key !== null).finally(() => { this.#asking = null; });
      const given = await this.#asking;
      if (given === null) throw new ServerError('The server wants an API key (401).');
      // A header takes no other characters.
      sessionStorage.setItem('key', given.replace(/[^\x21-\x7e]/g, ''));
    }
  }

  /** The chunks of an answer. Ends early with a ServerError where the server says what is wrong. */
  async* answer(messages, settings, signal) {
    const body = { model: this.info.model || 'default', messages, stream: true, stream_options: { include_usage: true }, ...settings };
    // Servers that do not know this field may refuse it.
    if (this.info.timings) Object.assign(body, { timings_per_token: true, speculation: true });
    const headers = { 'content-type': 'application/json' };
    const response = await this.#fetch('v1/chat/completions', { method: 'POST', body: JSON.stringify(body), headers, signal });
    if (!response.ok) throw new ServerError(refusal(response.status, await response.text()));
    if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
      yield whole(await response.json());
      return;
    }
    for await (const data of events(response.body)) {
      if (data === '[DONE]') return;
      const chunk = parsed(data);
      const error = chunk.error ?? (chunk.choices ? null : chunk.message && chunk);
      if (error) throw new ServerError(described(error));
      yield chunk;
    }
  }
}

function ofProps(props) {
  const { n_ctx: context, params } = props.default_generation_settings ?? {};
  const masks = Array.isArray(props.masks) ? props.masks.filter((mask) => typeof mask?.name === 'string') : [];
  return { model: String(props.model_alias ?? ''), models: [], name: String(props.model_name ?? ''), context: Number(context) || null, defaults: params ?? {}, masks, timings: true };
}

function parsed(data) {
  let chunk = null;
  try {
    chunk = JSON.parse(data);
  } catch { /* said below */ }
  if (chunk === null || typeof chunk !== 'object') throw new ServerError(`The server sent an event that is no JSON object: ${data.slice(0, 80)}`);
  return chunk;
}

/** An answer that came in one piece, as the chunk that would have had all of it. */
function whole(answer) {
  const choices = (answer.choices ?? []).map((choice) => ({ ...choice, delta: choice.message }));
  return { ...answer, choices };
}

function described(error) {
  if (error.type === 'exceed_context_size_error' && error.n_prompt_tokens && error.n_ctx) {
    return `This conversation has ${error.n_prompt_tokens} tokens, and the server's context ${error.n_ctx}. `
      + 'Edit an earlier message, or begin a new conversation.';
  }
  return String(error.message ?? JSON.stringify(error));
}

function refusal(status, text) {
  try {
    const { error } = JSON.parse(text);
    if (error) return `${typeof error === 'string' ? error : described(error)} (${status})`;
  } catch { /* not JSON: a proxy's page, perhaps */ }
  return `The server answered ${status}${status === 503 ? ': it is busy, or still loading its model' : ''}.`;
}
