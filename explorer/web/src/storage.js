// What GraphiQL keeps in this browser: tabs, history, looks. Its history would
// keep the headers, too, and so the secrets in them: they are left out.
const prefix = 'chaingql:'
const keys = () => Object.keys(localStorage).filter((key) => key.startsWith(prefix))

export const storage = {
  getItem: (key) => localStorage.getItem(prefix + key),
  setItem: (key, value) => localStorage.setItem(prefix + key, withoutHeaders(value)),
  removeItem: (key) => localStorage.removeItem(prefix + key),
  get length() {
    return keys().length
  },
  clear() {
    for (const key of keys()) localStorage.removeItem(key)
  },
}

function withoutHeaders(text) {
  if (!text.startsWith('{')) return text
  try {
    return JSON.stringify(JSON.parse(text), (key, value) => (key === 'headers' ? undefined : value))
  } catch {
    return text // a document that begins with a brace
  }
}
