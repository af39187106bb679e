// Renders chat templates with @huggingface/jinja: a job a line on stdin, an answer a line on stdout.
// The argument is the folder whose node_modules has the package.
import { createRequire } from "node:module";
import readline from "node:readline";

const { Template } = createRequire(`${process.argv[2]}/`)("@huggingface/jinja");
const compiled = new Map();

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { template, variables } = JSON.parse(line);
  let answer;
  try {
    if (!compiled.has(template)) compiled.set(template, new Template(template));
    answer = { text: compiled.get(template).render(variables) };
  } catch (error) {
    answer = { error: String(error.message ?? error) };
  }
  console.log(JSON.stringify(answer));
}
