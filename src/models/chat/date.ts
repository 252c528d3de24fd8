/** Days, as a person names them and as chat templates write them. */
import { ContinuoError } from '../../errors.ts'

const MONTHS = [
  ...['January', 'February', 'March', 'April', 'May', 'June'],
  ...['July', 'August', 'September', 'October', 'November', 'December'],
]
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday']

/** What strftime of C gives at midnight of a day, for the conversions that templates use. */
export const strftime = (date: string, format: string): string => {
  const [year, month, day] = date.split('-') as [string, string, string]
  const weekday = DAYS[new Date(`${date}T00:00:00Z`).getUTCDay()]!
  const name = MONTHS[Number(month) - 1]!
  const known: Readonly<Record<string, string>> = {
    ...{
      Y: year,
      m: month,
      d: day,
      y: year.slice(2),
      B: name,
      b: name.slice(0, 3),
      A: weekday,
      a: weekday.slice(0, 3),
    },
    ...{ H: '00', M: '00', S: '00', I: '12', p: 'AM', F: date, e: day.replace(/^0/, ' '), '-d': day.replace(/^0/, '') },
    ...{ '-m': month.replace(/^0/, ''), '%': '%' },
  }
  return format.replace(/%(-?[A-Za-z%])/g, (whole, letter: string) => {
    const found = Object.hasOwn(known, letter) ? known[letter] : undefined
    if (found === undefined) throw new Error(`strftime_now is asked for ${whole}, which is not known here`)
    return found
  })
}

/** Throws INVALID unless it is a day, YYYY-MM-DD. */
export const checkDate = (date: string): string => {
  const parsed = /^\d{4}-\d{2}-\d{2}$/.test(date) ? new Date(`${date}T00:00:00Z`) : null
  if (parsed !== null && !Number.isNaN(parsed.getTime()) && parsed.toISOString().startsWith(date)) return date
  throw new ContinuoError('INVALID', `The date is ${JSON.stringify(date)}, expected a day as YYYY-MM-DD.`)
}
