// Random typing errors in a document.
const token = /\s+|#[^\n\r]*|"""[^]*?"""|"(?:\\.|[^"\\\n])*"|\.\.\.|[A-Za-z_]\w*|-?[\d.]+(?:[eE][+-]?\d+)?|[^]/gu
const strays = [
  '{', '}', '(', ')', '[', ']', ':', '=', '!', '$', '@', '|', '&', '...', '..', '.', '"', '""', '"""', '\\', '#', '-', '0', '1.5', '01', '"a"', 'null', 'true',
  'on', 'query', 'fragment', 'subscription', 'mutation', 'type', 'schema', 'extend', 'a', '$v0', '@skip', '@skip(if: true)', '__typename', 'id', ',', '\ufeff', '\u00a0', 'é', '😀', '\u2028', '\u0000', '\u0007', '%', ';', '<', '?', '^', '`', "'", '/',
]

export function mutate(random, text) {
  let parts = random.chance(0.7) ? text.match(token) ?? [] : [...text]
  for (let n = 1 + random.below(2); n > 0 && parts.length > 0; n--) {
    const i = random.below(parts.length)
    const j = random.below(parts.length)
    parts = [...parts]
    switch (random.below(6)) {
      case 0: parts.splice(i, 1); break
      case 1: parts.splice(i, 0, random.pick(strays)); break
      case 2: [parts[i], parts[j]] = [parts[j], parts[i]]; break
      case 3: parts.splice(i, 1, random.pick(strays)); break
      case 4: parts.splice(i, 0, parts[j]); break
      case 5: parts.length = i + 1; break // the rest is cut off
    }
  }
  return parts.join('')
}
