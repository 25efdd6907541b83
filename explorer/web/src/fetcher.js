// The fetcher of GraphiQL sends queries over HTTP and subscriptions over
// graphql-transport-ws. Each request contains the secret in the form, unless the
// headers editor contains an Authorization header.
import { getOperationAST, parse } from 'graphql'
import { ask } from './api.js'
import { closing } from './closing.js'
import { line } from './line.js'

export function fetcherOf(access) {
  return (params, { headers } = {}) => {
    const to = access() // the current values of the form, submitted or not
    const own = { ...to, headers: merged(to.headers, headers) }
    const operation = operationOf(params)
    const asked = { ...params, operationName: operation?.name?.value ?? params.operationName }
    return operation?.operation === 'subscription' ? subscription(own, asked) : ask(own, asked)
  }
}

// operationOf returns the operation to run. Just after the user has changed to another
// tab, operationName may belong to the previous tab; then the only operation is used.
function operationOf({ query, operationName }) {
  try {
    const document = parse(query)
    return getOperationAST(document, operationName) ?? getOperationAST(document)
  } catch {
    return undefined // the server will report the error
  }
}

// merged merges headers and spells Authorization as the connection_init message requires.
function merged(...all) {
  const headers = {}
  for (const [name, value] of all.flatMap((some) => Object.entries(some ?? {}))) {
    headers[name.toLowerCase() === 'authorization' ? 'Authorization' : name] = value
  }
  return headers
}

// subscription starts a subscription on its own socket. After unsubscribe, it reports
// nothing more: GraphiQL may already run another subscription and would consider that
// one to have ended.
function subscription(to, params) {
  return {
    subscribe(sink) {
      let left = false
      const client = line(to)
      const stop = client.subscribe(params, {
        next: (result) => left || sink.next(result),
        complete: () => left || sink.complete(),
        error: (err) => left || sink.error(Array.isArray(err) ? err : closing(err)),
      })
      return {
        unsubscribe() {
          left = true
          stop()
          client.dispose().catch(() => {}) // ignore that the connection was never established
        },
      }
    },
  }
}
