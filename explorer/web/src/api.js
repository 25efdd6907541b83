// One request by HTTP. Without cookies: with them the browser would itself ask
// for a password where it is refused.
export async function ask({ url, headers }, body, signal) {
  let response
  try {
    response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body), credentials: 'omit', signal })
  } catch (err) {
    if (err.name === 'AbortError') throw err
    throw new Error('The server cannot be reached.', { cause: err })
  }
  const type = response.headers.get('content-type') ?? ''
  if (!type.includes('json')) throw new Error(`${url} answered ${response.status} ${response.statusText}, and not in JSON.`)
  return response.json()
}

// data is what a request brings, or its first error thrown.
export async function data(to, query, variables, signal) {
  const { data, errors } = await ask(to, { query, variables }, signal)
  if (errors) throw Object.assign(new Error(errors[0].message), errors[0])
  return data
}
