// The editor creates style elements. The page's Content-Security-Policy allows them only
// if they have the nonce of the page.
const { nonce } = document.querySelector('meta[nonce]')
const create = document.createElement

document.createElement = function (name, ...rest) {
  const element = create.call(this, name, ...rest)
  if (element instanceof HTMLStyleElement) element.nonce = nonce
  return element
}
