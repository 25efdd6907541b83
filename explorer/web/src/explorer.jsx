import './nonce.js'
import './workers.js'
import '@graphiql/react/style.css'
import '@graphiql/plugin-doc-explorer/style.css'
import '@graphiql/plugin-history/style.css'
import 'graphiql/graphiql.css'
import './bar.css'
import './explorer.css'
import { DOC_EXPLORER_PLUGIN } from '@graphiql/plugin-doc-explorer'
import { GraphiQL } from 'graphiql'
import 'monaco-graphql/esm/lite.js'
import 'monaco-graphql/esm/monaco-editor.js'
import { useEffect, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { access, onAccess } from './access.js'
import { examples } from './examples.js'
import { fetcherOf } from './fetcher.js'
import { storage } from './storage.js'

const place = document.querySelector('#graphiql')
const tabs = examples(place.dataset.account)
const wide = matchMedia('(min-width: 75rem)').matches

// A new fetcher makes GraphiQL request the schema again.
const fetcherNow = () => fetcherOf(access)

function Explorer() {
  const [fetcher, turn] = useState(fetcherNow)
  useEffect(() => onAccess(() => turn(fetcherNow)), [])
  return (
    <GraphiQL
      fetcher={fetcher}
      defaultTabs={tabs}
      defaultEditorToolsVisibility={wide}
      visiblePlugin={wide ? DOC_EXPLORER_PLUGIN : undefined}
      shouldPersistHeaders={false}
      forcedTheme="system" // like the rest of the page
      storage={storage}
    >
      <GraphiQL.Logo>{null}</GraphiQL.Logo>
    </GraphiQL>
  )
}

createRoot(place).render(<Explorer />)
