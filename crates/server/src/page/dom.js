// Elements are made here, of text and attributes; nothing in this page is made of HTML in strings but markdown, which is
// sanitized.

export const byId = (id) => document.getElementById(id);

/** An element. Properties that begin with "on" are listeners, `class` is its class, all others are attributes. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function icon(name) {
  const SVG = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

/** A button with an icon alone; `label` is what it is called. */
export function iconButton(name, label, onclick) {
  return h('button', { type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick }, icon(name));
}

/** A button that copies what `text()` gives, and says that it has. */
export function copyButton(label, text) {
  const button = iconButton('copy', label, async () => {
    const done = await copy(text());
    button.replaceChildren(icon(done ? 'done' : 'copy'));
    say(done ? 'Copied' : 'The browser does not allow copying');
    setTimeout(() => button.replaceChildren(icon('copy')), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page of plain HTTP from another machine has no clipboard, but may copy what is selected.
    const area = h('textarea', { class: 'unseen', readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** Tells a screen reader. */
export function say(text) {
  byId('status').textContent = text;
}

let hiding;
/** One line that anyone sees, for a few seconds. */
export function notice(text) {
  const element = byId('notice');
  element.textContent = text;
  element.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { element.hidden = true; }, 8000);
}

/** Asks for a text (or for nothing but yes, where `value` is not given); null if the user would rather not. */
export function ask({ title, text = '', ok, value, secret = false }) {
  const dialog = byId('ask');
  const input = byId('ask-input');
  byId('ask-title').textContent = title;
  byId('ask-text').textContent = text;
  byId('ask-text').hidden = !text;
  byId('ask-ok').textContent = ok;
  input.hidden = value === undefined;
  input.type = secret ? 'password' : 'text';
  input.value = value ?? '';
  dialog.returnValue = '';
  dialog.showModal();
  (input.hidden ? byId('ask-ok') : input).focus();
  if (!input.hidden) input.select();
  return new Promise((resolve) => {
    byId('ask-cancel').onclick = () => dialog.close();
    byId('ask-ok').value = 'yes';
    dialog.onclose = () => resolve(dialog.returnValue === 'yes' ? input.value : null);
  });
}
