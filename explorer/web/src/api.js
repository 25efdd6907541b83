// One request by HTTP. Without cookies: with them the browser would itself ask
// for a password where it is refused.
export async function ask({ url, headers }, body, signal) {
  let response
  try {
    response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body), credentials: 'omit', signal })
  } catch (err) {
    if (signal?.aborted) throw err // as whoever gave up puts it
    throw new Error('The server cannot be reached.', { cause: err })
  }
  const type = response.headers.get('content-type') ?? ''
  if (!type.includes('json')) throw new Error(`${url} answered ${response.status} ${response.statusText}, and not in JSON.`)
  return response.json()
}

export const patience = 10_000 // milliseconds: a line that is dead does not say so

// data is what a request brings in time, or its first error thrown.
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
