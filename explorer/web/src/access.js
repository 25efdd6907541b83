// The form above each page, in which the user enters the project and its secret.
// The secret is stored only for this browser tab, and only if the user asks for it.
const form = document.querySelector('#access')
const { project, secret, keep } = form.elements
const place = 'chaingql:access'

const kept = JSON.parse(store()?.getItem(place) ?? '{}')
project.value = kept.project ?? project.value
secret.value = kept.secret ?? ''
keep.checked = kept.secret !== undefined

// access returns the URLs of the API and the headers for each request.
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

// onAccess calls told each time the form is submitted. It returns a function that stops this.
export function onAccess(told) {
  const heard = () => told(access())
  form.addEventListener('submit', heard)
  return () => form.removeEventListener('submit', heard)
}

function save() {
  store()?.setItem(place, JSON.stringify({ project: project.value.trim(), secret: keep.checked ? secret.value : undefined }))
}

// store returns undefined if the browser's settings forbid storage.
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
