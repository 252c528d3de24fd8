/** Two gateways for the suites of tools: one tells tools in words, one by a chat template in Hermes' form. */
import { cpSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MODEL, temporary } from '../cli/helpers.ts'
import { type Serving, servingAll } from './helpers.ts'

const TEMPLATE = `{%- if tools %}Tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}
{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{{ {"name": c.function.name, "arguments": c.function.arguments} | tojson }}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`

/** They end with what `finished` speaks of. */
export const servingTools = async (
  finished: (end: () => Promise<unknown>) => void,
): Promise<readonly [plain: Serving, hermes: Serving]> => {
  const dir = join(temporary(), 'hermes')
  cpSync(MODEL, dir, { recursive: true })
  writeFileSync(join(dir, 'chat_template.jinja'), TEMPLATE)
  return Promise.all([servingAll(finished), servingAll(finished, '--model', dir, '--model-name', 'demo')])
}
