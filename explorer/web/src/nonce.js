// The editor creates style elements. The policy of the page permits only style elements
// with the nonce of the response, so this adds the nonce.
const { nonce } = document.querySelector('meta[nonce]')
const create = document.createElement

document.createElement = function (name, ...rest) {
  const element = create.call(this, name, ...rest)
  if (element instanceof HTMLStyleElement) element.nonce = nonce
  return element
}
