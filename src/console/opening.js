// @ts-check
/** Settings of a session, by an `open` event: what it tells of itself from then on. */
import { pathOf, post } from './api.js'
import { store } from './store.js'

/** Asks for settings beside those that the session that is looked at has. @param {Record<string, true>} more */
export const openWith = async (more) => {
  const row = store.selected === null ? undefined : store.sessions.get(store.selected)
  if (row === undefined) return
  // What an `open` leaves out is not reported from then on.
  await post(`${pathOf(row.id)}/chunks`, { type: 'open', ...row.settings, ...more })
}
