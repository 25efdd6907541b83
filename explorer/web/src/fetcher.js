// How GraphiQL asks: queries by HTTP, subscriptions by graphql-transport-ws, each
// with the form's secret, which the headers editor overrides.
import { getOperationAST, parse } from 'graphql'
import { ask } from './api.js'
import { closing } from './closing.js'
import { line } from './line.js'

export function fetcherOf(access) {
  return (params, { headers } = {}) => {
    const to = access() // as the form is now, sent or not
    const own = { ...to, headers: merged(to.headers, headers) }
    const operation = operationOf(params)
    const asked = { ...params, operationName: operation?.name?.value ?? params.operationName }
    return operation?.operation === 'subscription' ? subscription(own, asked) : ask(own, asked)
  }
}

// operationOf is the one that is meant. Just after a turn to another tab GraphiQL
// names that of the tab before.
function operationOf({ query, operationName }) {
  try {
    const document = parse(query)
    return getOperationAST(document, operationName) ?? getOperationAST(document)
  } catch {
    return undefined // the server says what is wrong with it
  }
}

// merged has Authorization as the socket's first message spells it.
function merged(...all) {
  const headers = {}
  for (const [name, value] of all.flatMap((some) => Object.entries(some ?? {}))) {
    headers[name.toLowerCase() === 'authorization' ? 'Authorization' : name] = value
  }
  return headers
}

// subscription is one by a socket of its own. Whoever left it hears no more: by then
// GraphiQL may be at another, which it would take for ended.
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
          client.dispose().catch(() => {}) // it never came about
        },
      }
    },
  }
}
