// The fetcher for GraphiQL. It sends queries over HTTP and subscriptions over
// graphql-transport-ws, each with the secret from the form. Headers from the headers
// editor have priority.
import { getOperationAST, parse } from 'graphql'
import { ask } from './api.js'
import { closing } from './closing.js'
import { line } from './line.js'

export function fetcherOf(access) {
  return (params, { headers } = {}) => {
    const to = access() // the current contents of the form, even if it was not submitted
    const own = { ...to, headers: merged(to.headers, headers) }
    const operation = operationOf(params)
    const asked = { ...params, operationName: operation?.name?.value ?? params.operationName }
    return operation?.operation === 'subscription' ? subscription(own, asked) : ask(own, asked)
  }
}

// operationOf returns the operation to run. If the document has no operation with
// operationName, it returns the only operation: immediately after the visitor changes
// the tab, GraphiQL still passes the operation name of the previous tab.
function operationOf({ query, operationName }) {
  try {
    const document = parse(query)
    return getOperationAST(document, operationName) ?? getOperationAST(document)
  } catch {
    return undefined // the response of the server will describe the syntax error
  }
}

// merged returns all headers; later ones replace earlier ones. It spells Authorization
// as the server expects it in the first message of a WebSocket.
function merged(...all) {
  const headers = {}
  for (const [name, value] of all.flatMap((some) => Object.entries(some ?? {}))) {
    headers[name.toLowerCase() === 'authorization' ? 'Authorization' : name] = value
  }
  return headers
}

// subscription runs a subscription on a new WebSocket. After unsubscribe it passes
// nothing more to GraphiQL: GraphiQL may already run another subscription, and would
// think that the new one has ended.
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
          client.dispose().catch(() => {}) // ignore the error of a connection that was never established
        },
      }
    },
  }
}
