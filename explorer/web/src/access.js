// The form at the top of each page, in which the visitor enters the project and
// its secret. The secret is stored only if the visitor requests it, and only in
// the sessionStorage of the tab.
const form = document.querySelector('#access')
const { project, secret, keep } = form.elements
const place = 'chaingql:access'

const kept = JSON.parse(store()?.getItem(place) ?? '{}')
project.value = kept.project ?? project.value
secret.value = kept.secret ?? ''
keep.checked = kept.secret !== undefined

// access returns the URLs of the API and the headers for a request.
export function access() {
  const url = new URL(form.dataset.endpoint.replaceAll('{project}', encodeURIComponent(project.value.trim() || project.defaultValue)), document.baseURI)
  const socket = new URL(url)
  socket.protocol = url.protocol.replace('http', 'ws')
  return { url: url.href, socket: socket.href, headers: secret.value ? { Authorization: basic(secret.value) } : {} }
}

function basic(password) {
  const bytes = new TextEncoder().encode(`:${password}`)
  return `Basic ${btoa(String.fromCharCode(...bytes))}`
}

// onAccess calls told each time the form is submitted. It returns a function that
// removes this listener.
export function onAccess(told) {
  const heard = () => told(access())
  form.addEventListener('submit', heard)
  return () => form.removeEventListener('submit', heard)
}

function save() {
  store()?.setItem(place, JSON.stringify({ project: project.value.trim(), secret: keep.checked ? secret.value : undefined }))
}

// store returns sessionStorage, or undefined if the browser settings forbid storage.
function store() {
  try {
    return sessionStorage
  } catch {
    return undefined
  }
}

keep.addEventListener('change', save)
form.addEventListener('submit', (event) => {
  event.preventDefault()
  save()
})
