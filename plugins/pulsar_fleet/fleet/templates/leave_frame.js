// Airflow shows these pages in a frame whose sandbox forbids its links to leave it.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[target="_top"]');
  if (!link || window.parent === window) return;
  event.preventDefault();
  const outside = window.parent.document.createElement("a");
  outside.href = link.href;
  if (event.ctrlKey || event.metaKey) outside.target = "_blank";
  window.parent.document.body.append(outside);
  outside.click();
  outside.remove();
});
