// Squarified treemap (Bruls, Huizing and van Wijk 2000): rectangles of given areas, as near to squares as can be.

export function treemap(sizes, width, height) {
  const total = sizes.reduce((sum, size) => sum + size, 0) || 1;
  const scale = (width * height) / total;
  const order = sizes.map((size, i) => [size * scale, i]).sort((a, b) => b[0] - a[0]);
  const result = new Array(sizes.length);
  let rest = { x: 0, y: 0, width, height };
  for (let start = 0; start < order.length;) {
    const side = Math.min(rest.width, rest.height);
    let end = start + 1;
    while (end < order.length && worst(order, start, end + 1, side) <= worst(order, start, end, side)) end += 1;
    rest = place(order.slice(start, end), rest, result);
    start = end;
  }
  return result;
}

function worst(order, start, end, side) {
  let sum = 0;
  for (let i = start; i < end; i += 1) sum += order[i][0];
  return Math.max((side * side * order[start][0]) / (sum * sum), (sum * sum) / (side * side * order[end - 1][0]));
}

function place(row, { x, y, width, height }, result) {
  const sum = row.reduce((all, [size]) => all + size, 0);
  const isWide = width >= height;
  const depth = sum / (isWide ? height : width) || 0;
  let at = isWide ? y : x;
  for (const [size, i] of row) {
    const length = size / depth || 0;
    result[i] = isWide ? { x, y: at, width: depth, height: length } : { x: at, y, width: length, height: depth };
    at += length;
  }
  return isWide ? { x: x + depth, y, width: width - depth, height } : { x, y: y + depth, width, height: height - depth };
}
