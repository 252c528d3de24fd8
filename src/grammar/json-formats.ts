/**
 * The formats of JSON Schema that OpenAI's structured outputs have, as regular expressions. Each is narrower than its
 * standard where that is no regular language, or where validators differ.
 */
const MONTH_DAY = '((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))'
/** RFC 3339; without the 29th of February and leap seconds. */
const DATE = `\\d{4}-${MONTH_DAY}`
const TIME = '([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)'
/** RFC 1123 */
const LABEL = '[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
const HOSTNAME = `${LABEL}(\\.${LABEL}){0,2}`
const BYTE = '(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)'
const GROUP = '[0-9a-fA-F]{1,4}'
/** ISO 8601 as RFC 3339, appendix A has it. */
const CLOCK = '(\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}S)'
const DAYS = '(\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}D)'

export const FORMATS: Readonly<Record<string, string>> = {
  date: DATE,
  time: TIME,
  'date-time': `${DATE}T${TIME}`,
  duration: `P(${DAYS}(T${CLOCK})?|T${CLOCK}|\\d{1,9}W)`,
  /** RFC 5321, dot strings of ASCII. */
  email: `[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,16}){0,1}@(${LABEL}\\.){1,2}[A-Za-z]{2,12}`,
  hostname: HOSTNAME,
  ipv4: `${BYTE}(\\.${BYTE}){3}`,
  /** RFC 4291 without the short form of zeros. */
  ipv6: `(${GROUP}:){7}${GROUP}`,
  uuid: '[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}',
}
