// ask sends one HTTP request. It sends no credentials, because otherwise the browser
// would show its own password dialog if the server refuses the request.
export async function ask({ url, headers }, body, signal) {
  let response
  try {
    response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body), credentials: 'omit', signal })
  } catch (err) {
    if (signal?.aborted) throw err // keep the reason of the caller that aborted
    throw new Error('The server cannot be reached.', { cause: err })
  }
  const type = response.headers.get('content-type') ?? ''
  if (!type.includes('json')) throw new Error(`${url} answered ${response.status} ${response.statusText}, and not in JSON.`)
  return response.json()
}

export const patience = 10_000 // milliseconds to wait, because a dead connection reports no error

// data returns the data of a response. If the response has errors, it throws the first
// one. It also throws an error if no response arrives in time.
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
