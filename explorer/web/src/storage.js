// The storage of GraphiQL in this browser, for tabs, history and appearance. Headers are
// removed from the stored values, because they may contain secrets.
const prefix = 'chaingql:'
const place = store()
const keys = () => Object.keys(place).filter((key) => key.startsWith(prefix))

export const storage = place && {
  getItem: (key) => place.getItem(prefix + key),
  setItem: (key, value) => place.setItem(prefix + key, withoutHeaders(value)),
  removeItem: (key) => place.removeItem(prefix + key),
  get length() {
    return keys().length
  },
  clear() {
    for (const key of keys()) place.removeItem(key)
  },
}

// store returns null if the browser's settings forbid storage. GraphiQL works without it.
function store() {
  try {
    return localStorage
  } catch {
    return null
  }
}

function withoutHeaders(text) {
  if (!text.startsWith('{')) return text
  try {
    return JSON.stringify(JSON.parse(text), (key, value) => (key === 'headers' ? undefined : value))
  } catch {
    return text // a document that begins with a brace
  }
}
