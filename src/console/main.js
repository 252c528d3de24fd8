// @ts-check
/** The console of a gateway: a page of plain modules, which the gateway serves as they are. */
import { drawAsk, drawVerify } from './actions.js'
import { byId, forgetColours, setText } from './dom.js'
import { drawPipeline, inWords } from './pipeline.js'
import { recolour } from './plot.js'
import { drawSession } from './session.js'
import { drawSessions } from './sessions.js'
import { connect, onDraw, redraw, store } from './store.js'
import { drawLetters, drawTables } from './tables.js'
import { drawTimeline } from './timeline.js'

const THEME = 'continuo-theme'
const THEMES = ['system', 'light', 'dark']

/** Light and dark follow the system until somebody says otherwise. */
const startTheme = () => {
  const button = byId('theme')
  const apply = (/** @type {string} */ theme) => {
    if (theme === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = theme
    setText(button, `Theme: ${theme}`)
    forgetColours()
    recolour()
    redraw()
  }
  let theme = localStorage.getItem(THEME) ?? 'system'
  if (!THEMES.includes(theme)) theme = 'system'
  apply(theme)
  button.addEventListener('click', () => {
    theme = /** @type {string} */ (THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])
    localStorage.setItem(THEME, theme)
    apply(theme)
  })
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => apply(theme))
}

/** Where the page is connected to, and how the stream stands. */
const drawBar = () => {
  onDraw(() => {
    const { hello, broken, frame } = store
    if (hello !== null) {
      setText(byId('where'), `${hello.model.id} (${hello.model.type}) · ${hello.log}`)
      document.title = `Continuo: ${hello.model.id}`
    }
    const link = byId('link')
    const state = broken !== '' ? 'broken' : frame?.caughtUp === true ? 'live' : 'reading'
    link.dataset.state = state
    setText(link, state === 'broken' ? broken : state === 'live' ? 'Live' : 'Reading the log…')
    if (frame !== null) byId('stages').setAttribute('aria-label', inWords(frame.pipeline))
  })
}

drawBar()
drawPipeline()
drawSessions()
drawSession()
drawAsk()
drawTimeline()
drawTables()
drawVerify()
drawLetters()
startTheme()
/** Times go by, also while nothing comes. */
setInterval(redraw, 1000)
void connect()
