// A server that streams what a test scripts. It serves the page as the real one is to: the files as they lie, with the policy.

import { createReadStream, existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';

const PAGE = new URL('../../crates/server/src/page/', import.meta.url);
const POLICY = readFileSync(new URL('policy.txt', PAGE), 'utf8').trim();
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', webmanifest: 'application/manifest+json' };
/** What the page's worker keeps. */
const FILES = readdirSync(PAGE, { recursive: true }).filter((name) => TYPES[name.split('.').pop()]);

/** What a test writes an answer with. */
class Reply {
  #response;
  #sources;

  constructor(response, sources) {
    this.#response = response;
    this.#sources = sources;
    this.closed = new Promise((resolve) => { response.on('close', resolve); });
  }

  #begin() {
    if (!this.#response.headersSent) this.#response.writeHead(200, { 'content-type': 'text/event-stream' });
  }

  raw(text) {
    this.#begin();
    this.#response.write(text);
  }

  chunk(fields) {
    this.raw(`data: ${JSON.stringify({ id: 'a', object: 'chat.completion.chunk', ...fields })}\n\n`);
  }

  delta(delta, fields = {}) {
    const sources = this.#sources && { sources: this.#sources };
    this.#sources = null;
    this.chunk({ choices: [{ index: 0, delta, finish_reason: null }], ...sources, ...fields });
  }

  text(content, fields) {
    this.delta({ content }, fields);
  }

  /** Tokens as pairs of their text and their source. */
  tokens(pairs, fields = {}) {
    const drafted = pairs.map(([, source]) => source);
    const pieces = pairs.map(([text]) => text.length);
    this.text(pairs.map(([text]) => text).join(''), { drafted, pieces, ...fields });
  }

  end({ finish = 'stop', usage, timings, speculation } = {}) {
    this.chunk({ choices: [{ index: 0, delta: {}, finish_reason: finish }] });
    if (usage || timings) this.chunk({ choices: [], ...(usage && { usage }), ...(timings && { timings }), ...(speculation && { speculation }) });
    this.raw('data: [DONE]\n\n');
    this.#response.end();
  }

  json(status, body) {
    this.#response.writeHead(status, { 'content-type': 'application/json' });
    this.#response.end(JSON.stringify(body));
  }

  refuse(status, error) {
    this.json(status, { error: { code: status, ...error } });
  }

  /** As a crash or a pulled plug would. */
  cut() {
    this.#response.destroy();
  }
}

/**
 * `answer(body, reply)` answers /v1/chat/completions; it may be changed on the way, as may `props` (null: there are none)
 * and `key`. `requests` has the bodies that came.
 */
export async function startMock(options = {}) {
  const mock = {
    props: { model_alias: 'stories', default_generation_settings: { n_ctx: 4096, params: { temperature: 0.8, top_k: 40, min_p: 0.05, n_predict: -1 } } },
    key: null,
    sources: null,
    loading: 0,
    requests: [],
    version: 'first',
    answer: (body, reply) => { reply.text('Hello.'); reply.end(); },
    ...options,
  };

  function serveFile(path, response) {
    const name = path === '/' ? 'index.html' : path.slice(1);
    const file = new URL(name, PAGE);
    const type = TYPES[name.split('.').pop()];
    if (!file.pathname.startsWith(PAGE.pathname) || !type || !existsSync(file)) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': type, 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' });
    createReadStream(fileURLToPath(file)).pipe(response);
  }

  async function api(path, request, response) {
    const reply = new Reply(response, mock.sources);
    if (mock.key && request.headers.authorization !== `Bearer ${mock.key}`) {
      return reply.refuse(401, { message: 'Invalid API Key', type: 'authentication_error' });
    }
    if (path === '/props') {
      if (mock.loading > 0) {
        mock.loading -= 1;
        return reply.refuse(503, { message: 'Loading model', type: 'unavailable_error' });
      }
      const model = new URL(request.url, 'http://mock').searchParams.get('model');
      const props = model === null ? mock.props : mock.propsOf?.[model];
      return props ? reply.json(200, props) : reply.refuse(404, { message: 'no such route' });
    }
    if (path === '/v1/models') return reply.json(200, { object: 'list', data: mock.models ?? [{ id: 'some-model' }] });
    let text = '';
    for await (const part of request) text += part;
    const body = JSON.parse(text);
    mock.requests.push(body);
    return mock.answer(body, reply);
  }

  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://mock');
    if (['/props', '/v1/models', '/v1/chat/completions'].includes(pathname)) api(pathname, request, response);
    else if (pathname === '/_app/version.json') {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ version: mock.version, files: ['./', ...FILES] }));
    } else serveFile(pathname, response);
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  mock.url = `http://${options.host ?? '127.0.0.1'}:${server.address().port}/`;
  mock.close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => { server.close(resolve); });
  };
  return mock;
}
