// ask sends one request over HTTP and returns the response. It sends no credentials
// of the browser, because otherwise the browser would ask the visitor for a password
// if the API rejects the request.
export async function ask({ url, headers }, body, signal) {
  let response
  try {
    response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body), credentials: 'omit', signal })
  } catch (err) {
    if (signal?.aborted) throw err // the reason that was passed to abort
    throw new Error('The server cannot be reached.', { cause: err })
  }
  const type = response.headers.get('content-type') ?? ''
  if (!type.includes('json')) throw new Error(`${url} answered ${response.status} ${response.statusText}, and not in JSON.`)
  return response.json()
}

export const patience = 10_000 // timeout in milliseconds, because a dead connection reports no error

// data returns the data of a response. It throws the first error of the response, or
// an error if there is no response within the timeout.
export async function data(to, query, variables, signal) {
  const giveUp = new AbortController()
  const leave = () => giveUp.abort()
  const late = setTimeout(() => giveUp.abort(new Error('The server does not answer.')), patience)
  signal?.addEventListener('abort', leave)
  try {
    const { data, errors } = await ask(to, { query, variables }, giveUp.signal)
    if (errors) throw Object.assign(new Error(errors[0].message), errors[0])
    return data
  } finally {
    clearTimeout(late)
    signal?.removeEventListener('abort', leave)
  }
}
