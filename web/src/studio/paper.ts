// The size of printed pages, which also says whether rules for landscape hold on them.

/** Print pages of so many pixels until what is returned is called. */
export function paged(width: number, height: number): () => void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`@page { size: ${width}px ${height}px; margin: 0; }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  return () => { document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet); };
}
