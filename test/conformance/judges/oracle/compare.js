// Comparison of an answer with that of graphql-js 17. Data must be equal byte for byte, and errors as sets.

// agree reports whether a server's answer equals that of the reference.
export function agree(want, got) {
  if (want.stream) return got.unread || (want.errors ? got.refused === true : got.stream === true)
  if (want.refused) return got.refused === true && sameErrors(want, got)
  return got.data === want.data && sameErrors(want, got)
}

const most = 10 // errors of a document that the server reports

const isConflict = ({ message }) => /^Fields "[^"]*" conflict because /.test(message)

// The server refuses definitions of types as a syntax error, and its spreads refer to the first of two fragments with
// one name.
const differs = ({ message }) => / definition is not executable\.$|^There can be only one fragment named /.test(message)

function sameErrors(want, got) {
  if (want.errors.some(differs)) return true
  const key = want.fixed ? textAndPlace : place
  // Conflicting fields are only reported if there is no other error, and not for each pair of fields.
  const others = want.errors.filter((err) => !isConflict(err))
  if (want.errors.length > 0 && others.length === 0) return got.errors.every(isConflict)
  const wanted = new Set(others.map(key))
  const found = new Set(got.errors.map(key))
  if (![...found].every((k) => wanted.has(k))) return false
  return got.first || got.errors.length === most || found.size === wanted.size
}

const place = ({ path, locations }) => JSON.stringify([path ?? null, (locations ?? []).map(({ line, column }) => [line, column])])

// textAndPlace also has the message, without the parts in which a literal is repeated, and without suggestions.
// graphql-js has "<meta>" instead of the type for a field that each type has. The server cuts messages at 300 bytes.
function textAndPlace(err) {
  const text = err.message.startsWith('Syntax Error') ? err.message : err.message.replace(/(found: |value: ).*/s, '')
  return text.replace(/(, did you mean |\. Did you mean ).*/s, '.').replace(/"[^".]+\.__/, '"__').replace(/\p{Surrogate}/gu, '').slice(0, 70) + place(err)
}

// show describes an answer.
export function show({ refused, stream, errors, ...rest }) {
  const what = refused ? 'refused' : stream ? 'a stream' : JSON.stringify(rest)
  return `${what} ${JSON.stringify(errors?.map(({ message, locations, path }) => ({ message, locations, path })) ?? [])}`
}
