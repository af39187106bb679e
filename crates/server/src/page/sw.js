// Keeps the page for times without the server: conversations can be read then. What the server answers always comes first.

const TOLD = '_app/version.json';

/// Keeps the files of the server's page, all of them or none, and forgets those of another.
async function keep() {
  const answer = await fetch(TOLD, { cache: 'no-store' });
  if (!answer.ok) throw new Error(`${TOLD}: ${answer.status}`);
  const { version, files } = await answer.json();
  const cache = await caches.open(version);
  if ((await cache.keys()).length === 0) await cache.addAll(files);
  const others = (await caches.keys()).filter((name) => name !== version);
  await Promise.all(others.map((name) => caches.delete(name)));
}

async function answer(request) {
  try {
    return await fetch(request);
  } catch (error) {
    const kept = await caches.match(request, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}

self.addEventListener('install', (event) => event.waitUntil(keep().then(() => self.skipWaiting())));
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET' || new URL(request.url).origin !== self.location.origin) return;
  event.respondWith(answer(request));
  // The server may be a newer one, with another page.
  if (request.mode === 'navigate') event.waitUntil(keep().catch(() => {}));
});
