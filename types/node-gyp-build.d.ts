declare module "node-gyp-build" {
  function load(folder: string): unknown;
  namespace load {
    function resolve(folder: string): string;
  }
  export = load;
}
