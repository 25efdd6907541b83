// Which project, with which secret: the form above each page. A secret is kept
// for the tab where that was asked for, and nowhere else.
const form = document.querySelector('#access')
const { project, secret, keep } = form.elements
const place = 'chaingql:access'

const kept = JSON.parse(store()?.getItem(place) ?? '{}')
project.value = kept.project ?? project.value
secret.value = kept.secret ?? ''
keep.checked = kept.secret !== undefined

// access is where the API is, and what a request shows there.
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

// onAccess calls told whenever the form is sent.
export function onAccess(told) {
  const heard = () => told(access())
  form.addEventListener('submit', heard)
  return () => form.removeEventListener('submit', heard)
}

function save() {
  store()?.setItem(place, JSON.stringify({ project: project.value.trim(), secret: keep.checked ? secret.value : undefined }))
}

// store is none where the browser is told to keep nothing.
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
