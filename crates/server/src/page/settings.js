// What is sent with every request, kept in this browser. What is empty is not sent.

import { byId, h } from './dom.js';

const NUMBERS = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 10, step: 'any' },
  { name: 'top_k', label: 'Top-k', min: 0, step: 1 },
  { name: 'top_p', label: 'Top-p', min: 0, max: 1, step: 'any' },
  { name: 'min_p', label: 'Min-p', min: 0, max: 1, step: 'any' },
  { name: 'seed', label: 'Seed', min: 0, max: 4294967295, step: 1 },
  { name: 'max_tokens', label: 'Most tokens', min: 1, step: 1 },
];
const TEXTS = ['system', 'stop', 'theme', 'mask', 'colours', 'model'];
const KEY = 'settings';

export class Settings {
  values = {};

  constructor() {
    let kept = null;
    try {
      kept = JSON.parse(localStorage.getItem(KEY));
    } catch { /* another program's, or cut: as if there were none */ }
    for (const { name } of NUMBERS) if (Number.isFinite(kept?.[name])) this.values[name] = kept[name];
    for (const name of TEXTS) if (typeof kept?.[name] === 'string') this.values[name] = kept[name];
    this.#dress();
  }

  set(values) {
    this.values = { ...this.values, ...values };
    for (const [name, value] of Object.entries(this.values)) if (value === '' || value === null) delete this.values[name];
    localStorage.setItem(KEY, JSON.stringify(this.values));
    this.#dress();
  }

  #dress() {
    const { theme } = this.values;
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  }

  /** The fields of a request. `masks` are those that this server has. */
  request(masks) {
    const fields = {};
    for (const { name } of NUMBERS) if (this.values[name] !== undefined) fields[name] = this.values[name];
    const stop = (this.values.stop ?? '').split('\n').filter(Boolean).map(unescaped);
    if (stop.length) fields.stop = stop;
    if (masks.some(({ name }) => name === this.values.mask)) fields.mask = this.values.mask;
    return fields;
  }
}

function unescaped(text) {
  const meant = { n: '\n', t: '\t', '\\': '\\' };
  return text.replace(/\\([nt\\])/g, (_, letter) => meant[letter]);
}

/** The dialog. `info()` is what is known of the server. */
export function settingsDialog(settings, info) {
  const dialog = byId('settings');
  const error = byId('settings-error');
  const inputs = new Map(NUMBERS.map(({ name, label, ...limits }) => {
    const input = h('input', { type: 'number', id: `set-${name}`, inputmode: 'decimal', ...limits });
    byId('numbers').append(h('label', { class: 'field' }, label, input));
    return [name, input];
  }));
  const texts = new Map(['system', 'stop', 'theme', 'mask'].map((name) => [name, byId(`set-${name}`)]));

  /** Masks that this server has; a server without any has nothing to show there. */
  function offer(masks) {
    byId('advanced').hidden = masks.length === 0;
    texts.get('mask').replaceChildren(h('option', { value: '' }, 'none'), ...masks.map(({ name, description, cost }) => {
      const percent = Number.isFinite(cost) ? `, ${Math.round(100 * cost)} % of the work` : '';
      return h('option', { value: name, title: description ?? '' }, `${name}${percent}`);
    }));
  }

  function fill(values) {
    const { defaults, masks } = info();
    offer(masks);
    for (const [name, input] of inputs) {
      const own = defaults[name] ?? (name === 'max_tokens' ? defaults.n_predict : undefined);
      input.value = values[name] ?? '';
      input.placeholder = placeholder(name, own);
    }
    for (const [name, input] of texts) input.value = values[name] ?? (name === 'theme' ? 'auto' : '');
    // One that another server has is kept for it, and is not sent to this one.
    if (!masks.some(({ name }) => name === values.mask)) texts.get('mask').value = '';
    error.hidden = true;
  }

  function save(event) {
    event.preventDefault();
    const wrong = [...inputs.values()].find((input) => !input.checkValidity());
    if (wrong) {
      error.textContent = `${wrong.labels[0].firstChild.textContent}: ${wrong.validationMessage}`;
      error.hidden = false;
      wrong.focus();
      return;
    }
    const values = {};
    for (const [name, input] of inputs) values[name] = input.value === '' ? null : input.valueAsNumber;
    for (const [name, input] of texts) if (name !== 'mask' || input.options.length > 1) values[name] = input.value;
    settings.set(values);
    dialog.close();
  }

  dialog.querySelector('form').noValidate = true;
  dialog.querySelector('form').addEventListener('submit', save);
  byId('settings-cancel').addEventListener('click', () => dialog.close());
  byId('settings-reset').addEventListener('click', () => fill({}));
  byId('open-settings').addEventListener('click', () => {
    fill(settings.values);
    dialog.showModal();
  });
}

function placeholder(name, own) {
  if (name === 'seed') return 'any';
  if (!Number.isFinite(own)) return '';
  if (own < 0) return name === 'max_tokens' ? 'no limit' : '';
  return String(Math.round(own * 1e4) / 1e4);
}
