// The editor makes style elements, which the page's policy refuses but from
// whoever knows its nonce.
const { nonce } = document.querySelector('meta[nonce]')
const create = document.createElement

document.createElement = function (name, ...rest) {
  const element = create.call(this, name, ...rest)
  if (element instanceof HTMLStyleElement) element.nonce = nonce
  return element
}
