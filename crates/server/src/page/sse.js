// Server-sent events: the data of each, as it arrives. Comments, which servers send to keep a connection open, are left out.

export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
        if (line === '' && data.length) {
          yield data.join('\n');
          data = [];
        } else if (line.startsWith('data:') || line.startsWith('error:')) {
          // Older llama-servers name a field "error" instead of sending it as data.
          data.push(line.slice(line.indexOf(':') + 1).replace(/^ /, ''));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
